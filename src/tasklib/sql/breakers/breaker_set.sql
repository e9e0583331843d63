-- What an operator says goes before the code, from now on. Its state stays.
WITH changed AS (
    INSERT INTO {schema.}breakers AS known (name, failures, at_least, within, pause, probes)
    VALUES (%(name)s, %(failures)s::float8, %(at_least)s::int, %(within)s::float8, %(pause)s::float8, %(probes)s::int)
    ON CONFLICT (name) DO UPDATE
    SET failures = EXCLUDED.failures, at_least = EXCLUDED.at_least, within = EXCLUDED.within, pause = EXCLUDED.pause,
        probes = EXCLUDED.probes, source = 'api', changed_at = EXCLUDED.changed_at, changed_by = ''
    WHERE (known.failures, known.at_least, known.within, known.pause, known.probes)
          IS DISTINCT FROM (EXCLUDED.failures, EXCLUDED.at_least, EXCLUDED.within, EXCLUDED.pause, EXCLUDED.probes)
    RETURNING 1
),
{include audited}
SELECT * FROM changed
