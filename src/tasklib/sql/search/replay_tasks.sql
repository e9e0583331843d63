-- Replay finished tasks by id, each like replay.sql. Rows that another transaction has locked are left out.
WITH batch AS (
    SELECT id FROM {schema.}tasks AS task
    WHERE id = ANY (%(ids)s::text[]::uuid[]) AND state IN ('completed', 'cancelled', 'dead_letter') AND {include owned}
    ORDER BY id
    FOR UPDATE SKIP LOCKED
),
changed AS (
    UPDATE {schema.}tasks AS task
    SET {include replayed}
    FROM batch
    WHERE task.id = ANY (ARRAY[batch.id])
    RETURNING task.id::text, history -> -1 ->> 'was' AS was, task.node, task.reports_to, task.waits_for
),
revived AS (
    SELECT was, node, reports_to, waits_for FROM changed
),
{include unreported},
{include steps_replayed},
{include audited_batch}
SELECT id FROM (SELECT id, {include wake} FROM changed) AS told
