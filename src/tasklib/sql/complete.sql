-- Record results. Guarded by state and token: a row that doesn't come back belongs to somebody else by now.
UPDATE {schema.}tasks AS task
SET state = 'completed',
    result = done.result::jsonb,
    error = NULL,
    completed_at = now(),
    next_retry_at = NULL,
    worker_id = NULL,
    locked_until = NULL
FROM unnest(%(ids)s::text[]::uuid[], %(tokens)s::bigint[], %(results)s::text[]) AS done (id, token, result)
WHERE task.id = done.id
  AND task.state = 'running'
  AND task.lease_token = done.token
RETURNING task.id::text
