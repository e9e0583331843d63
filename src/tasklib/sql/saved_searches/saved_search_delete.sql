WITH changed AS (
    DELETE FROM {schema.}saved_searches WHERE name = %(name)s RETURNING 1
),
{include audited}
SELECT * FROM changed
