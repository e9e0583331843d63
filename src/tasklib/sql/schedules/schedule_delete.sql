-- Its tasks and the record of its slots stay.
WITH changed AS (
    DELETE FROM {schema.}schedules WHERE name = %(name)s RETURNING 1
),
{include audited}
SELECT * FROM changed
