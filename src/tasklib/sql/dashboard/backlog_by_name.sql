-- What waits under each name, by level. Counted up to a limit in all, of which each lane has an equal share.
WITH RECURSIVE {include level_lanes},
share AS (
    SELECT greatest(1, least(%(most)s, %(most_in_all)s / greatest(1, count(*)))) AS most FROM seen WHERE due <= now()
),
counted AS (
    SELECT lane.name, lane.level, least(waiting.depth, most) AS depth, waiting.depth > most AS is_capped, lane.due
    FROM seen AS lane
    CROSS JOIN share
    CROSS JOIN LATERAL (
        SELECT count(*) AS depth
        FROM (
            SELECT
            FROM {schema.}tasks AS task
            WHERE task.state IN ('pending', 'failed') AND task.waits_for IS NULL
              AND task.queue = lane.queue
              AND task.name = lane.name
              AND task.required_capabilities = lane.required_capabilities
              AND task.priority = lane.priority
              AND {due} <= now()
            ORDER BY {due}, id
            LIMIT most + 1
        ) AS one
    ) AS waiting
    WHERE lane.due <= now()
)
SELECT name, level, sum(depth)::bigint, bool_or(is_capped), extract(epoch FROM now() - min(due))::float8
FROM counted
GROUP BY name, level
ORDER BY name, array_position('{high,medium,low}'::text[], level)
