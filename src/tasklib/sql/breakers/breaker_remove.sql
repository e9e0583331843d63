-- A breaker that the code declares stays as a row that is off: otherwise the next worker would bring it back.
WITH deleted AS (
    DELETE FROM {schema.}breakers WHERE name = %(name)s AND declared IS NULL RETURNING 1
),
emptied AS (
    UPDATE {schema.}breakers
    SET failures = NULL, at_least = NULL, within = NULL, pause = NULL, probes = NULL, source = 'api',
        {include breaker_closed}
    WHERE name = %(name)s AND declared IS NOT NULL AND failures IS NOT NULL
    RETURNING 1
),
changed AS (
    SELECT * FROM deleted UNION ALL SELECT * FROM emptied
),
{include audited}
SELECT * FROM changed
