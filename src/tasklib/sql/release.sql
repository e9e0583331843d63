-- Give tasks back as they were before the claim, without using a retry, but for rows that another transaction has
-- locked. The token stays: it only ever grows. What runs at most once and has begun
-- can't be given back.
WITH given AS (
    SELECT task.id
    FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) AS given (id, token)
    JOIN {schema.}tasks AS task ON task.id = given.id
    WHERE {still_running}
      AND task.lease_token = given.token
      AND task.worker_id = %(worker)s
      AND NOT ({include begun} AND task.at_most_once IS TRUE)
    ORDER BY task.id
    FOR NO KEY UPDATE OF task SKIP LOCKED
)
UPDATE {schema.}tasks AS task
SET state = CASE WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
                 WHEN next_retry_at IS NULL THEN 'pending' ELSE 'failed' END,
    completed_at = CASE WHEN cancel_requested_at IS NOT NULL THEN now() END,
    started_at = NULL,
    worker_id = NULL,
    locked_until = NULL
FROM given
WHERE task.id = given.id
RETURNING task.id::text, task.state, {include wake}
