-- Record attempts that stopped because they were cancelled.
UPDATE {schema.}tasks AS task
SET state = 'cancelled',
    completed_at = now(),
    next_retry_at = NULL,
    error = stopped.error,
    worker_id = NULL,
    locked_until = NULL
FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(errors)s::text[]) AS stopped (id, token, error)
WHERE task.id = stopped.id
  AND {still_running}
  AND task.lease_token = stopped.token
  AND task.worker_id = %(worker)s
RETURNING task.id::text
