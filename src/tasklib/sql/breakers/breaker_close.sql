-- By hand: attempts before this moment don't count any more.
WITH changed AS (
    UPDATE {schema.}breakers
    SET {include breaker_closed}
    WHERE name = %(name)s AND state <> 'closed'
    RETURNING 1
),
{include audited}
SELECT * FROM changed
