WITH changed AS (
    DELETE FROM {schema.}backpressure WHERE queue = %(queue)s RETURNING 1
),
{include audited}
SELECT * FROM changed
