-- The only way out of a terminal state, and recorded: a fresh start with all retries, under the same growing token.
WITH changed AS (
    UPDATE {schema.}tasks AS task
    SET {include replayed}
    WHERE id = %(id)s::text::uuid AND state IN ('completed', 'cancelled', 'dead_letter') AND {include owned}
    RETURNING task.id, history -> -1 ->> 'was' AS was, state, task.required_capabilities, name, queue, priority, 'replayed' AS outcome, history -> -1 ->> 'was' AS reason,
              task.node, task.reports_to, task.waits_for
),
revived AS (
    SELECT was, node, reports_to, waits_for FROM changed
),
{include unreported},
{include steps_replayed},
{include counted},
{include audited}
SELECT state FROM (SELECT state, {include wake_one} FROM changed AS task) AS told
