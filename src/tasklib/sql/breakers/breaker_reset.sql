-- As the code declares it.
WITH changed AS (
    UPDATE {schema.}breakers
    SET {include breaker_as_declared}, source = 'code', changed_at = now(), changed_by = ''
    WHERE name = %(name)s AND declared IS NOT NULL AND source = 'api'
    RETURNING 1
),
{include audited}
SELECT * FROM changed
