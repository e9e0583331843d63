-- Put steps on record. The first record of a name counts; what is recorded already is answered with. Only by the attempt
-- that holds the task: the lock keeps every later attempt from beginning until this is committed. A task that another
-- transaction has locked is left out.
WITH given AS MATERIALIZED (
    SELECT given.*, row_number() OVER () AS place
    FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(kinds)s::text[], %(names)s::text[], %(results)s::text[],
                %(seconds)s::float8[]) AS given (id, token, kind, name, result, seconds)
),
held AS MATERIALIZED (
    SELECT * FROM (
        SELECT given.*
        FROM given
        JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[given.id])
        WHERE {still_running}
          AND task.lease_token = given.token
          AND task.worker_id = %(worker)s
        ORDER BY given.id
        FOR SHARE OF task SKIP LOCKED
    ) AS locked
),
written AS (
    INSERT INTO {schema.}steps (task, kind, name, result, token)
    SELECT id, kind, name,
           -- A moment is counted from now, by the database's clock.
           CASE WHEN seconds IS NULL THEN result::jsonb
                ELSE jsonb_build_object('value', clock_timestamp() + make_interval(secs => seconds)) END,
           token
    FROM held
    ORDER BY id, kind, name
    ON CONFLICT (task, kind, name) DO NOTHING
    RETURNING task, kind, name, result
)
-- Null where the record of another statement is too young to be seen: ask again.
SELECT held.place, COALESCE(written.result, steps.result)::text, written.result IS NOT NULL
FROM held
LEFT JOIN written ON written.task = held.id AND written.kind = held.kind AND written.name = held.name
LEFT JOIN {schema.}steps ON steps.task = held.id AND steps.kind = held.kind AND steps.name = held.name
