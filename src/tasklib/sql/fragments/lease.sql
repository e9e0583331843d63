SET state = 'running',
    worker_id = %(worker)s,
    locked_until = now() + make_interval(secs => %(lease)s),
    lease_token = lease_token + 1
