-- Erase what finished tasks hold. A task that was replayed or erased since it was found is left. In the order of ids, as all
-- statements lock rows.
WITH locked AS MATERIALIZED (
    SELECT id FROM {schema.}tasks
    WHERE id = ANY (%(ids)s::uuid[])
      AND state IN ('completed', 'cancelled', 'dead_letter')
      AND NOT kwargs ? '$erased'
    ORDER BY id
    FOR UPDATE
),
changed AS (
    UPDATE {schema.}tasks AS task
    SET kwargs = '{"$erased": true}',
        args = '{}',
        result = NULL,
        error = CASE WHEN error IS NOT NULL THEN 'erased' END,
        progress = NULL,
        -- When each attempt ran and how it ended stays; its error goes.
        history = (SELECT jsonb_agg(CASE WHEN entry ? 'error' THEN entry || '{"error": "erased"}' ELSE entry END
                                    ORDER BY place)
                   FROM jsonb_array_elements(task.history) WITH ORDINALITY AS entries (entry, place)),
        -- Keys are often made of the same data.
        idempotency_key = NULL,
        idempotency_expires_at = NULL,
        merge_key = NULL,
        merge_while = NULL,
        key_id = NULL
    FROM locked
    WHERE task.id = locked.id
    RETURNING task.id
),
steps_gone AS (
    DELETE FROM {schema.}steps USING changed WHERE steps.task = changed.id
),
signals_gone AS (
    DELETE FROM {schema.}signals USING changed WHERE signals.task = changed.id
),
{include audited_batch}
SELECT id::text FROM changed
