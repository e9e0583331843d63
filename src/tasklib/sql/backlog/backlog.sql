-- Due tasks by queue and level: how many, and since when the oldest waits. Everything here is bounded: one probe for
-- each of `most_lanes` lanes, and counts that end at `most`. Finished tasks and tasks that are not due cost nothing.
WITH RECURSIVE {include lanes_with_tasks},
bounds AS (
    SELECT %(most)s::bigint AS most, %(most_lanes)s::bigint AS most_lanes
),
seen AS MATERIALIZED (
    SELECT *, {include level} AS level FROM lanes LIMIT %(most_lanes)s
),
due_lanes AS (
    SELECT * FROM seen WHERE due <= now()
),
bands AS (
    SELECT queue, level, min(due) AS oldest FROM due_lanes GROUP BY queue, level
)
SELECT queue, level, depth,
       depth >= most OR (SELECT count(*) FROM seen) >= most_lanes,
       extract(epoch FROM now() - oldest)::float8
FROM bands
CROSS JOIN bounds
CROSS JOIN LATERAL (
    SELECT count(*) AS depth
    FROM (
        SELECT
        FROM due_lanes AS lane
        -- In the index's order, and up to a number unknown to the planner: so it plans to stop.
        CROSS JOIN LATERAL (
            SELECT
            FROM {schema.}tasks AS task
            WHERE {include in_lane}
              AND {due} <= now()
            ORDER BY {due}, task.id
            LIMIT (SELECT most FROM bounds)
        ) AS waiting
        WHERE lane.queue = bands.queue AND lane.level = bands.level
        LIMIT (SELECT most FROM bounds)
    ) AS some_of_it
) AS counted
ORDER BY queue, level
