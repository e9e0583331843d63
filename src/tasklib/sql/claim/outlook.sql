-- In how many seconds the next task of this worker's lanes becomes due; null if none waits. The oldest transaction that
-- is under way. And whether due tasks that this worker doesn't serve stand in its way: so many at the head of a lane
-- that it is worth setting them apart (set_apart.sql). Behind them no task of its own is looked for here. Whether any
-- task or queue is behind limits, and whether any name is: then there is more to claim (claim_limited.sql).
WITH RECURSIVE {include from_the_beginning}
SELECT extract(epoch FROM min(COALESCE(first, CASE WHEN behind > now() THEN behind END)) - now())::float8,
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
       COALESCE(bool_or(behind <= now()), false),
       EXISTS (SELECT FROM lanes WHERE lane >= E'\x01' AND lane < E'\x02')
           OR EXISTS (SELECT FROM {schema.}pauses WHERE kind IN ('limited_queue', 'limited_name')),
       EXISTS (SELECT FROM {schema.}pauses WHERE kind = 'limited_name')
FROM ours AS lane
CROSS JOIN LATERAL (SELECT CASE WHEN lane.lane <> '' THEN lane.due ELSE (
    SELECT due
    FROM (
        SELECT name, {due} AS due
        FROM {schema.}tasks AS task
        WHERE {include in_lane}
        ORDER BY {due}, id
        LIMIT %(crowd)s
    ) AS task
    WHERE {include our_name}
    LIMIT 1) END AS first
) AS served
CROSS JOIN LATERAL (SELECT CASE WHEN first IS NULL THEN (
    SELECT {due}
    FROM {schema.}tasks AS task
    WHERE {include in_lane}
    ORDER BY {due}, id
    OFFSET %(crowd)s - 1
    LIMIT 1) END AS behind
) AS crowd
