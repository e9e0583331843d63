-- Many dead letters start afresh, each as replay.sql would have it.
WITH {include dead_letter_batch},
changed AS (
    UPDATE {schema.}tasks AS task
    SET {include replayed}
    FROM batch
    WHERE task.id = ANY (ARRAY[batch.id])
    RETURNING task.id::text, batch.completed_at, name, queue, priority, 'replayed' AS outcome, 'dead_letter' AS reason, 'dead_letter' AS was,
              task.node, task.reports_to, task.waits_for
),
revived AS (
    SELECT was, node, reports_to, waits_for FROM changed
),
{include unreported},
{include steps_replayed},
{include counted},
{include audited_batch}
SELECT id, completed_at FROM (SELECT id, completed_at, {include wake} FROM changed) AS told
