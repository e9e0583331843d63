SET state = 'running',
    worker_id = %(worker)s,
    started_at = now(),
    locked_until = now() + make_interval(secs => %(lease)s),
    lease_token = lease_token + 1
