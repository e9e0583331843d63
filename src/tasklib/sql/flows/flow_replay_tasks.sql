-- Of one page of a flow, the dead letters and the tasks that were cancelled by request start afresh. What a gate cancelled is not
-- among them: it waits again when its gate is judged anew.
WITH wanted AS (SELECT %(id)s::text::uuid AS id),
members AS MATERIALIZED (
    SELECT member.* FROM wanted CROSS JOIN LATERAL ({include members_after}) AS member
),
page AS (
    SELECT * FROM (
        SELECT task.id
        FROM members
        JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[members.id])
        -- Expressions, so that no index fits but the primary key: another one has all tasks in these states.
        WHERE task.state || '' = 'dead_letter' OR (task.state || '' = 'cancelled' AND task.cancel_requested_at IS NOT NULL)
        FOR UPDATE OF task SKIP LOCKED
    ) AS locked
),
changed AS (
    UPDATE {schema.}tasks AS task
    SET {include replayed}
    FROM page
    WHERE task.id = ANY (ARRAY[page.id])
    RETURNING task.name, task.queue, task.priority, 'replayed' AS outcome,
              task.history -> -1 ->> 'was' AS reason, task.history -> -1 ->> 'was' AS was, task.id, task.node, task.reports_to, task.waits_for
),
revived AS (
    SELECT was, node, reports_to, waits_for FROM changed
),
{include unreported},
{include steps_replayed},
{include counted}
SELECT reason, NULL, NULL, NULL, NULL FROM (SELECT reason, {include wake} FROM changed) AS told
UNION ALL
({include member_places})
