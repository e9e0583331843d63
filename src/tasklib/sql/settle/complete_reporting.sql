-- The same where some of the tasks report to gates, or hold places in limits.
WITH written AS (
    UPDATE {schema.}tasks AS task
    {include completed}
    FROM (SELECT unnest(%(ids)s::uuid[]) AS id, unnest(%(tokens)s::bigint[]) AS token,
                 unnest(%(results)s::text[]) AS result, clock_timestamp() AS moment) AS done
    WHERE task.id BETWEEN done.id AND done.id
      AND {still_running}
      AND task.lease_token = done.token
      AND task.worker_id = %(worker)s
    RETURNING task.id, task.node, task.reports_to
),
ended AS (
    SELECT id, 'completed' AS state, node, reports_to FROM written
),
{include reported},
{include freed}
{include complete_answer},
       -- The gates that count some of them, for callers that don't know which tasks report.
       (SELECT array_agg(DISTINCT gate::text) FROM reported)
FROM written
