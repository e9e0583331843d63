-- The same where some of the tasks report to gates, or hold places in limits.
WITH written AS (
    UPDATE {schema.}tasks AS task
    {include completed}
    FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(results)s::text[]) AS done (id, token, result)
    WHERE task.id = ANY (ARRAY[done.id])
      AND {still_running}
      AND task.lease_token = done.token
      AND task.worker_id = %(worker)s
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
