-- Cancel a batch. Locked rows are left out, so this never waits and can't deadlock with settling workers;
-- cancel_rest.sql finds them afterwards. Cancelled rows no longer match, so the next batch starts after them.
WITH waiting AS (
    SELECT id FROM {schema.}tasks AS task
    WHERE task.state IN ('pending', 'failed') AND task.waits_for IS NULL AND {include task_filter}
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
at_a_gate AS (
    SELECT id FROM {schema.}tasks AS task
    WHERE task.state IN ('pending', 'failed') AND task.waits_for IS NOT NULL AND {include task_filter}
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
running AS (
    SELECT id FROM {schema.}tasks AS task
    WHERE task.state = 'running' AND task.cancel_requested_at IS NULL AND {include task_filter}
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
changed AS (
    UPDATE {schema.}tasks AS task
    SET {include cancelled}
    WHERE id = ANY (ARRAY(SELECT id FROM waiting UNION ALL SELECT id FROM at_a_gate
                          UNION ALL SELECT id FROM running))
    RETURNING state, name, queue, priority, state AS outcome, '' AS reason, task.id, task.node, task.reports_to
),
ended AS (
    SELECT id, state, node, reports_to FROM changed
),
{include reported},
{include freed},
{include counted},
{include audited_batch}
SELECT state FROM (SELECT state, CASE WHEN state = 'running' THEN {include wake} END FROM changed) AS told
