-- What the code declares: rules of limits, and the limits of each name. A rule that an operator changed stays; only what
-- the code says of it is noted. Nothing is written that is as it was, so a fleet that restarts doesn't contend here.
WITH rules AS (
    INSERT INTO {schema.}limits AS known (name, source, declared, max_running, rate, per, burst, serial)
    SELECT name, 'code', declared, (declared ->> 'max_running')::int, (declared ->> 'rate')::float8,
           (declared ->> 'per')::float8, (declared ->> 'burst')::int, declared ->> 'serial'
    FROM jsonb_to_recordset(%(rules)s::text::jsonb) AS rule (name text, declared jsonb)
    ORDER BY name
    ON CONFLICT (name) DO UPDATE
    SET declared = EXCLUDED.declared,
        max_running = CASE WHEN known.source = 'code' THEN EXCLUDED.max_running ELSE known.max_running END,
        rate = CASE WHEN known.source = 'code' THEN EXCLUDED.rate ELSE known.rate END,
        per = CASE WHEN known.source = 'code' THEN EXCLUDED.per ELSE known.per END,
        burst = CASE WHEN known.source = 'code' THEN EXCLUDED.burst ELSE known.burst END,
        serial = CASE WHEN known.source = 'code' THEN EXCLUDED.serial ELSE known.serial END
    WHERE known.declared IS DISTINCT FROM EXCLUDED.declared
    RETURNING name
),
uses AS (
    INSERT INTO {schema.}limited_names AS known (name, uses)
    SELECT name, uses
    FROM jsonb_to_recordset(%(uses)s::text::jsonb) AS used (name text, uses jsonb)
    ORDER BY name
    ON CONFLICT (name) DO UPDATE SET uses = EXCLUDED.uses
    WHERE known.uses IS DISTINCT FROM EXCLUDED.uses
    RETURNING name
),
-- Functions of this worker that have no limits any more.
freed AS (
    DELETE FROM {schema.}limited_names
    WHERE name = ANY (%(names)s::text[])
      AND name NOT IN (SELECT used.name FROM jsonb_to_recordset(%(uses)s::text::jsonb) AS used (name text))
    RETURNING name
)
SELECT (SELECT count(*) FROM rules) + (SELECT count(*) FROM uses) + (SELECT count(*) FROM freed)
