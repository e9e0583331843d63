-- Give tasks back as they were before the claim, without using a retry. The token stays: it only ever grows.
UPDATE {schema.}tasks AS task
SET state = CASE WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
                 WHEN next_retry_at IS NULL THEN 'pending' ELSE 'failed' END,
    completed_at = CASE WHEN cancel_requested_at IS NOT NULL THEN now() END,
    started_at = NULL,
    worker_id = NULL,
    locked_until = NULL
FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) AS given (id, token)
WHERE task.id = given.id
  AND {still_running}
  AND task.lease_token = given.token
  AND task.worker_id = %(worker)s
RETURNING task.id::text, task.state, {include wake}
