WITH changed AS (
    DELETE FROM {schema.}backpressure WHERE subject = %(subject)s RETURNING 1
),
{include audited}
SELECT * FROM changed
