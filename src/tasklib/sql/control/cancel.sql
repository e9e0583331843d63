-- Waiting tasks are cancelled at once; running ones are requested to stop, and workers are notified. Finished tasks, and
-- running ones whose cancel was requested before, are not changed and not returned.
WITH changed AS (
    UPDATE {schema.}tasks AS task
    SET {include cancelled}
    WHERE id = %(id)s::text::uuid
      AND (state IN ('pending', 'failed') OR (state = 'running' AND cancel_requested_at IS NULL))
      AND {include owned}
    RETURNING state, name, queue, priority, state AS outcome, '' AS reason, task.id, task.node, task.reports_to
),
ended AS (
    SELECT id, state, node, reports_to FROM changed
),
{include reported},
{include freed},
{include counted},
{include audited}
SELECT state FROM (SELECT state, CASE WHEN state = 'running' THEN {include wake} END FROM changed) AS told
