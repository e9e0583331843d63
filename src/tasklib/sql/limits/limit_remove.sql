-- A limit that the code declares stays as a row without bounds: otherwise the next worker would bring it back. Serial keys
-- hold by default.
WITH deleted AS (
    DELETE FROM {schema.}limits WHERE name = %(name)s AND declared IS NULL RETURNING 1
),
emptied AS (
    UPDATE {schema.}limits
    SET max_running = NULL, rate = NULL, per = NULL, burst = NULL, serial = NULL, weight = NULL, may_burst = NULL,
        source = 'api', changed_at = now()
    WHERE name = %(name)s AND declared IS NOT NULL
      AND (COALESCE(max_running, rate, weight) IS NOT NULL OR serial IS NOT NULL)
    RETURNING 1
),
changed AS (
    SELECT * FROM deleted UNION ALL SELECT * FROM emptied
),
{include audited}
SELECT * FROM changed
