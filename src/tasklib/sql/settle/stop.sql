-- Record attempts that stopped because they were cancelled.
WITH stopped AS (
    SELECT * FROM (
        SELECT task.id, given.error
        FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(errors)s::text[]) AS given (id, token, error)
        JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[given.id])
        WHERE {include lock_held}
    ) AS locked
),
ended AS (
    UPDATE {schema.}tasks AS task
    SET state = 'cancelled',
        completed_at = now(),
        next_retry_at = NULL,
        error = stopped.error,
        worker_id = NULL,
        locked_until = NULL
    FROM stopped
    WHERE task.id = ANY (ARRAY[stopped.id])
    RETURNING task.id, task.state, task.node, task.reports_to
),
{include reported},
{include freed}
SELECT id::text FROM ended
