WITH changed AS (
    UPDATE {schema.}schedules
    SET paused_at = now(), paused_by = %(actor)s, pause_note = %(note)s, revision = revision + 1, changed_at = now()
    WHERE name = %(name)s AND paused_at IS NULL
    RETURNING 1
),
{include audited}
SELECT * FROM changed
