-- As the code declares it.
WITH changed AS (
    UPDATE {schema.}limits
    SET {include limit_as_declared}, source = 'code', changed_at = now()
    WHERE name = %(name)s AND declared IS NOT NULL AND source = 'api'
    RETURNING 1
),
{include audited}
SELECT * FROM changed
