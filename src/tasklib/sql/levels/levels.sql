-- How deep each queue is at each level, and how long its tasks have waited. What the leader lately found to be deep is
-- taken from its snapshot; the rest is counted.
WITH RECURSIVE {include level_lanes},
snapshot AS (
    SELECT level.*, taken_at > now() - make_interval(secs => %(fresh)s) AS is_fresh
    FROM {schema.}snapshots
    CROSS JOIN LATERAL jsonb_to_recordset(figures -> 'levels') AS level (
        queue text, level text, depth bigint, capped boolean, p50 float8, p95 float8, p99 float8)
),
counted AS (
    SELECT lane.queue, lane.level, waiting.due
    FROM seen AS lane
    CROSS JOIN LATERAL (
        SELECT {due} AS due
        FROM {schema.}tasks AS task
        WHERE {include in_lane}
          AND {due} <= now()
        ORDER BY {due}, id
        LIMIT %(most)s + 1
    ) AS waiting
    WHERE lane.due <= now()
      AND NOT EXISTS (SELECT FROM snapshot WHERE is_fresh AND depth > %(most)s
                      AND snapshot.queue = lane.queue AND snapshot.level = lane.level OFFSET 0)
    LIMIT %(most_in_all)s
),
-- Counting in the order of lanes: when it stops early, the queue where it stopped and those behind are not complete.
sums AS (
    SELECT queue, level, count(*) AS depth,
           percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY extract(epoch FROM now() - due)::float8) AS ages
    FROM counted
    GROUP BY queue, level
),
stopped AS (
    SELECT CASE WHEN count(*) = %(most_in_all)s THEN max(queue) END AS at_queue FROM counted
)
SELECT head.queue, head.level,
       greatest(sums.depth, snapshot.depth, 1),
       NOT is_exact,
       NOT is_exact AND COALESCE(snapshot.capped, true),
       oldest_age,
       CASE WHEN is_exact OR snapshot.p50 IS NULL THEN sums.ages[1] ELSE snapshot.p50 END,
       CASE WHEN is_exact OR snapshot.p50 IS NULL THEN sums.ages[2] ELSE snapshot.p95 END,
       CASE WHEN is_exact OR snapshot.p50 IS NULL THEN sums.ages[3] ELSE snapshot.p99 END,
       (SELECT count(*) FROM seen) = %(most_lanes)s
FROM (
    SELECT queue, level, extract(epoch FROM now() - min(due))::float8 AS oldest_age
    FROM seen
    WHERE due <= now()
    GROUP BY queue, level
) AS head
LEFT JOIN sums USING (queue, level)
LEFT JOIN snapshot USING (queue, level)
CROSS JOIN stopped
CROSS JOIN LATERAL (
    SELECT COALESCE(sums.depth <= %(most)s AND (at_queue IS NULL OR queue < at_queue), false) AS is_exact
) AS judged
ORDER BY queue, array_position('{high,medium,low}'::text[], level)
