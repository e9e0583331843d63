-- Due tasks at the heads of lanes that belong behind limits of their names, and are not there: they were inserted by a
-- program that didn't know of the limits, or before there were any. Each moves into the lane of its limits, once. Looks
-- at the lanes of all names and of single names, and at those that a claim has named. Tasks with serial keys move in
-- order: by one statement at a time, and of a name all that were found, or none. Says how many were moved, and whether
-- others have to be tried again in a moment.
WITH RECURSIVE limited AS MATERIALIZED (
    SELECT COALESCE(array_agg(value), '{}')::text[] AS names FROM {schema.}pauses WHERE kind = 'limited_name'
),
serial AS MATERIALIZED (
    SELECT COALESCE(array_agg(name), '{}')::text[] AS names
    FROM {schema.}limited_names
    WHERE jsonb_path_exists(uses, '$[*].serial')
),
ours AS MATERIALIZED (
    SELECT name FROM {schema.}limited_names WHERE name = ANY ((SELECT names FROM serial)::text[])
    FOR NO KEY UPDATE SKIP LOCKED
),
lanes AS (
    (SELECT queue, lane, required_capabilities, priority
     FROM {schema.}tasks
     WHERE state IN ('pending', 'failed') AND waits_for IS NULL
     ORDER BY queue, lane, required_capabilities, priority, {due}, id
     LIMIT 1)
    UNION ALL
    SELECT following.*
    FROM lanes AS lane
    CROSS JOIN LATERAL (
        SELECT queue, lane, required_capabilities, priority
        FROM {schema.}tasks
        WHERE state IN ('pending', 'failed') AND waits_for IS NULL
          AND (queue, lane, required_capabilities, priority) > (
              lane.queue,
              CASE WHEN lane.lane = '' OR lane.lane >= E'\x02' THEN lane.lane ELSE E'\x02' END,
              CASE WHEN lane.lane = '' OR lane.lane >= E'\x02' THEN lane.required_capabilities ELSE '{}' END,
              CASE WHEN lane.lane = '' OR lane.lane >= E'\x02' THEN lane.priority ELSE -11 END)
        ORDER BY queue, lane, required_capabilities, priority, {due}, id
        LIMIT 1
    ) AS following
),
looked_at AS (
    SELECT queue, lane, required_capabilities, priority FROM lanes WHERE lane = '' OR lane >= E'\x02'
    UNION
    SELECT named.queue, named.lane, head.required_capabilities, head.priority
    FROM unnest(%(lane_queues)s::text[], %(lane_names)s::text[]) AS named (queue, lane)
    CROSS JOIN LATERAL {schema.}tasklib_heads(named.queue, named.lane, named.lane || E'\x01') AS head
),
found AS MATERIALIZED (
    SELECT found.id, found.name
    FROM looked_at AS lane
    CROSS JOIN LATERAL (
        SELECT id, name
        FROM (
            SELECT id, name, task.lane, kwargs
            FROM {schema.}tasks AS task
            WHERE {include in_lane}
              AND {due} <= now()
            ORDER BY {due}, id
            LIMIT %(most)s
        ) AS task
        WHERE name = ANY ((SELECT names FROM limited)::text[])
          AND {schema.}tasklib_lane(name, task.lane, kwargs) <> task.lane
    ) AS found
),
misplaced AS MATERIALIZED (
    SELECT * FROM (
        SELECT task.id, task.name, {schema.}tasklib_lane(task.name, task.lane, task.kwargs) AS belongs
        FROM found
        JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[found.id])
        WHERE COALESCE(task.state, '') IN ('pending', 'failed')
        FOR UPDATE OF task SKIP LOCKED
    ) AS locked
),
held_up AS MATERIALIZED (
    SELECT DISTINCT name
    FROM found
    WHERE name = ANY ((SELECT names FROM serial)::text[])
      AND (name NOT IN (SELECT name FROM ours) OR id NOT IN (SELECT id FROM misplaced))
),
moved AS (
    UPDATE {schema.}tasks AS task
    SET lane = misplaced.belongs
    FROM misplaced
    WHERE task.id = ANY (ARRAY[misplaced.id])
      AND misplaced.name NOT IN (SELECT name FROM held_up)
    -- A worker that can take it may have looked while it was on its way.
    RETURNING task.id
)
SELECT count(*), EXISTS (SELECT FROM held_up) FROM (SELECT {include wake} FROM moved) AS told
