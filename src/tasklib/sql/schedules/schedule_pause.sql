WITH changed AS (
    UPDATE {schema.}schedules
    SET paused_at = (SELECT COALESCE(paused_at, now())), paused_by = %(actor)s, pause_note = %(note)s, revision = revision + 1,
        changed_at = now()
    -- Pausing again without a note keeps what is said about the pause.
    WHERE name = %(name)s AND (paused_at IS NULL OR pause_note IS DISTINCT FROM COALESCE(%(note)s::text, pause_note))
    RETURNING 1
),
{include audited}
SELECT * FROM changed
