-- What waits under each name, by level: counted in each lane up to a limit, and up to another in all.
WITH RECURSIVE {include level_lanes},
counted AS (
    SELECT lane.name, lane.level, waiting.due
    FROM seen AS lane
    CROSS JOIN LATERAL (
        SELECT {due} AS due
        FROM {schema.}tasks AS task
        WHERE task.state IN ('pending', 'failed')
          AND task.queue = lane.queue
          AND task.name = lane.name
          AND task.required_capabilities = lane.required_capabilities
          AND task.priority = lane.priority
          AND {due} <= now()
        ORDER BY {due}, id
        LIMIT %(most)s
    ) AS waiting
    WHERE lane.due <= now()
    LIMIT %(most_in_all)s
),
whole AS (
    SELECT count(*) < %(most_in_all)s AS is_whole FROM counted
)
SELECT head.name, head.level, greatest(COALESCE(sums.depth, 0), 1), NOT is_whole OR COALESCE(sums.depth, 0) >= %(most)s,
       head.oldest_age
FROM (
    SELECT name, level, extract(epoch FROM now() - min(due))::float8 AS oldest_age
    FROM seen
    WHERE due <= now()
    GROUP BY name, level
) AS head
LEFT JOIN (SELECT name, level, count(*) AS depth FROM counted GROUP BY name, level) AS sums USING (name, level)
CROSS JOIN whole
ORDER BY head.name, array_position('{high,medium,low}'::text[], head.level)
