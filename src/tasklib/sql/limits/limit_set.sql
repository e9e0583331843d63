-- What an operator says goes before the code, from now on.
WITH changed AS (
    INSERT INTO {schema.}limits AS known (name, max_running, rate, per, burst, serial, weight, may_burst)
    VALUES (%(name)s, %(max_running)s::int, %(rate)s::float8, %(per)s::float8, %(burst)s::int, %(serial)s,
            %(weight)s::int, %(may_burst)s::boolean)
    ON CONFLICT (name) DO UPDATE
    SET max_running = EXCLUDED.max_running, rate = EXCLUDED.rate, per = EXCLUDED.per, burst = EXCLUDED.burst,
        serial = EXCLUDED.serial, weight = EXCLUDED.weight, may_burst = EXCLUDED.may_burst, source = 'api',
        changed_at = EXCLUDED.changed_at
    WHERE (known.max_running, known.rate, known.per, known.burst, known.serial, known.weight, known.may_burst)
          IS DISTINCT FROM (EXCLUDED.max_running, EXCLUDED.rate, EXCLUDED.per, EXCLUDED.burst, EXCLUDED.serial,
                            EXCLUDED.weight, EXCLUDED.may_burst)
    RETURNING 1
),
{include audited}
SELECT * FROM changed
