-- Extend leases that are still ours and have not run out: a lost lease is never taken back.
UPDATE {schema.}tasks AS task
SET locked_until = now() + make_interval(secs => %(lease)s)
FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) AS held (id, token)
WHERE task.id = held.id
  AND {still_running}
  AND task.lease_token = held.token
  AND task.worker_id = %(worker)s
  AND task.locked_until > now()
RETURNING task.id::text
