WITH changed AS (
    INSERT INTO {schema.}backpressure (subject, max_wait, max_pending)
    VALUES (%(subject)s, %(max_wait)s::float8, %(max_pending)s::bigint)
    ON CONFLICT (subject) DO UPDATE
    SET max_wait = EXCLUDED.max_wait, max_pending = EXCLUDED.max_pending, changed_at = EXCLUDED.changed_at
    WHERE (backpressure.max_wait, backpressure.max_pending) IS DISTINCT FROM (EXCLUDED.max_wait, EXCLUDED.max_pending)
    RETURNING 1
),
{include audited}
SELECT * FROM changed
