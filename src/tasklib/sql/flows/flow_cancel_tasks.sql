-- One page of a flow's unfinished tasks: those that wait are cancelled, those that run are requested to stop. Locked rows
-- are left out, so this never waits; the caller asks again.
WITH page AS (
    SELECT id FROM {schema.}tasks AS task
    WHERE task.flow = %(id)s::text::uuid
      AND (task.state IN ('pending', 'failed') OR (task.state = 'running' AND task.cancel_requested_at IS NULL))
    ORDER BY task.node, task.id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
changed AS (
    UPDATE {schema.}tasks AS task
    SET {include cancelled}
    FROM page
    WHERE task.id = page.id
    RETURNING task.state, CASE WHEN task.state = 'running' THEN {include wake} END,
              task.name, task.queue, task.priority, task.state AS outcome, '' AS reason, task.id, task.node,
              task.reports_to
),
ended AS (
    SELECT id, state, node, reports_to FROM changed
),
{include reported},
{include counted}
SELECT state FROM changed
