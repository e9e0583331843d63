-- One page of a flow whose cancel was requested: its tasks that wait are cancelled, those that run are requested to stop.
-- Locked rows are left out, so this never waits; flow_cancel_rest.sql finds them afterwards, and so does the leader's
-- sweep, which goes on where a client died. A replay takes the request back, so pages that come later cancel nothing.
WITH wanted AS (
    SELECT flow.id FROM {schema.}flows AS flow
    WHERE flow.id = %(id)s::text::uuid AND flow.cancel_requested_at IS NOT NULL AND flow.finished_at IS NULL
),
members AS MATERIALIZED (
    SELECT member.* FROM wanted CROSS JOIN LATERAL ({include members_after}) AS member
),
page AS (
    SELECT * FROM (
        SELECT task.id
        FROM members
        JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[members.id])
        WHERE {include to_cancel}
        FOR UPDATE OF task SKIP LOCKED
    ) AS locked
),
changed AS (
    UPDATE {schema.}tasks AS task
    SET {include cancelled}
    FROM page
    WHERE task.id = ANY (ARRAY[page.id])
    RETURNING task.state,
              task.name, task.queue, task.priority, task.state AS outcome, '' AS reason, task.id, task.node,
              task.reports_to
),
ended AS (
    SELECT id, state, node, reports_to FROM changed
),
{include reported},
{include freed},
{include counted}
SELECT state, NULL, NULL, NULL, NULL
FROM (SELECT state, CASE WHEN state = 'running' THEN {include wake} END FROM changed) AS told
UNION ALL
({include member_places})
