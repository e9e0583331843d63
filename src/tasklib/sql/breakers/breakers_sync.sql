-- What the code declares. A breaker that an operator changed stays as it is; only what the code says of it is noted.
-- Nothing is written that is as it was, so a fleet that restarts doesn't contend here.
WITH declared AS (
    INSERT INTO {schema.}breakers AS known (name, source, declared, failures, at_least, within, pause, probes)
    SELECT name, 'code', declared, (declared ->> 'failures')::float8, (declared ->> 'at_least')::int,
           (declared ->> 'within')::float8, (declared ->> 'pause')::float8, (declared ->> 'probes')::int
    FROM jsonb_to_recordset(%(breakers)s::text::jsonb) AS breaker (name text, declared jsonb)
    ORDER BY name
    ON CONFLICT (name) DO UPDATE
    SET declared = EXCLUDED.declared,
        failures = CASE WHEN known.source = 'code' THEN EXCLUDED.failures ELSE known.failures END,
        at_least = CASE WHEN known.source = 'code' THEN EXCLUDED.at_least ELSE known.at_least END,
        within = CASE WHEN known.source = 'code' THEN EXCLUDED.within ELSE known.within END,
        pause = CASE WHEN known.source = 'code' THEN EXCLUDED.pause ELSE known.pause END,
        probes = CASE WHEN known.source = 'code' THEN EXCLUDED.probes ELSE known.probes END
    WHERE known.declared IS DISTINCT FROM EXCLUDED.declared
    RETURNING name
),
-- Functions of this worker that have none any more.
freed AS (
    DELETE FROM {schema.}breakers
    WHERE name = ANY (%(names)s::text[]) AND source = 'code'
      AND name NOT IN (SELECT given.name FROM jsonb_to_recordset(%(breakers)s::text::jsonb) AS given (name text))
    RETURNING name
)
SELECT (SELECT count(*) FROM declared) + (SELECT count(*) FROM freed)
