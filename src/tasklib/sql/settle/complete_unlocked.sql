-- The same for tasks that may report to gates, and for what is not locked by another transaction; it takes a fifth longer than complete.sql, which waits.
WITH done AS (
    SELECT * FROM (
        SELECT task.id, given.result, clock_timestamp() AS moment
        FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(results)s::text[]) AS given (id, token, result)
        JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[given.id])
        WHERE {include lock_held}
    ) AS locked
),
written AS (
    UPDATE {schema.}tasks AS task
    {include completed}
    FROM done
    WHERE task.id = ANY (ARRAY[done.id])
    RETURNING task.id, task.state, task.node, task.reports_to
),
ended AS (
    SELECT * FROM written
),
{include reported},
{include freed}
{include complete_answer},
       -- The gates that count some of them, for callers that don't know which tasks report.
       (SELECT array_agg(DISTINCT gate::text) FROM reported)
FROM written
