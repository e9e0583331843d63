-- Give tasks back as they were before the claim, without using a retry. The token stays: it only ever grows. A task that
-- runs at most once and has begun can't be given back.
WITH given AS (
    SELECT * FROM (
        SELECT task.id
        FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) AS given (id, token)
        JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[given.id])
        WHERE NOT ({include begun} AND task.at_most_once IS TRUE)
          AND {include lock_held}
    ) AS locked
),
ended AS (
    UPDATE {schema.}tasks AS task
    SET state = CASE WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
                     WHEN next_retry_at IS NULL THEN 'pending' ELSE 'failed' END,
        completed_at = (SELECT CASE WHEN cancel_requested_at IS NOT NULL THEN now() END),
        started_at = NULL,
        worker_id = NULL,
        locked_until = NULL
    FROM given
    WHERE task.id = ANY (ARRAY[given.id])
    RETURNING task.id, task.state, task.node, task.reports_to, task.queue, task.name, task.required_capabilities
),
{include reported},
{include freed}
SELECT id, state FROM (SELECT id::text, state, {include wake_one} FROM ended AS task) AS told
