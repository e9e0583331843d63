-- Wake others for the due tasks that this worker serves: it was woken for them, and has no room for all. Of each lane only
-- the first are counted: those that are woken pass on what they can't take either. Whether a limit has room for the tasks
-- behind it is for them to find out; if there are many lanes behind limits, all workers are woken.
WITH RECURSIVE {include from_the_beginning},
really_paused AS MATERIALIZED (
    SELECT COALESCE(array_agg(value) FILTER (WHERE kind = 'queue'), '{}')::text[] AS queues,
           COALESCE(array_agg(value) FILTER (
               WHERE kind IN ('name', 'open_breaker', 'probing_breaker')), '{}')::text[] AS names,
           COALESCE(array_agg(value) FILTER (WHERE kind = 'limited_queue'), '{}')::text[] AS limited_queues,
           COALESCE(array_agg(value) FILTER (WHERE kind = 'limited_name'), '{}')::text[] AS limited_names
    FROM {schema.}pauses
),
-- Where tasks are behind limits: in a queue that has one, in lanes of limits, in the lane of a name that has one.
ranges AS (
    SELECT DISTINCT queue,
           CASE WHEN queue = ANY (limited_queues) THEN '' WHEN lane < E'\x02' THEN E'\x01' ELSE lane END AS since,
           CASE WHEN queue = ANY (limited_queues) THEN NULL WHEN lane < E'\x02' THEN E'\x02'
                ELSE lane || E'\x01' END AS until
    FROM lanes
    CROSS JOIN really_paused AS known
    WHERE queue = ANY (COALESCE(%(queues)s::text[], ARRAY[queue]))
      AND queue <> ALL (known.queues)
      AND (queue = ANY (limited_queues) OR lane >= E'\x01' AND lane < E'\x02' OR lane = ANY (limited_names))
),
behind AS (
    SELECT first.*, ranges.until
    FROM ranges
    CROSS JOIN LATERAL (
        SELECT queue, lane, required_capabilities, priority
        FROM {schema.}tasks AS task
        WHERE state IN ('pending', 'failed') AND waits_for IS NULL
          AND task.queue = ranges.queue AND task.lane >= ranges.since
        ORDER BY queue, lane, required_capabilities, priority, {due}, id
        LIMIT 1
    ) AS first
    WHERE ranges.until IS NULL OR first.lane < ranges.until -- of the row that is found, else the scan would go on
    UNION ALL
    SELECT following.*, lane.until
    FROM behind AS lane
    CROSS JOIN LATERAL (
        SELECT queue, lane, required_capabilities, priority
        FROM {schema.}tasks AS task
        WHERE state IN ('pending', 'failed') AND waits_for IS NULL
          AND task.queue = lane.queue
          AND (task.lane, task.required_capabilities, task.priority)
              > (lane.lane, lane.required_capabilities, lane.priority)
        ORDER BY queue, lane, required_capabilities, priority, {due}, id
        LIMIT 1
    ) AS following
    WHERE lane.until IS NULL OR following.lane < lane.until
),
first_behind AS MATERIALIZED (
    SELECT queue, lane, required_capabilities, priority FROM behind LIMIT 21
),
waiting AS (
    SELECT task.queue, task.name, task.required_capabilities, sum(least(tasks, most))::bigint AS tasks
    FROM (
        SELECT *, %(most)s::bigint AS most
        FROM (SELECT queue, lane, required_capabilities, priority FROM ours) AS lane
        UNION ALL
        SELECT *, 1 FROM first_behind
    ) AS lane
    CROSS JOIN LATERAL (
        SELECT task.queue, task.name, task.required_capabilities, count(*) AS tasks
        FROM (
            SELECT queue, name, required_capabilities
            FROM {schema.}tasks AS task
            WHERE {include in_lane}
              AND {due} <= now()
            ORDER BY {due}, id
            LIMIT %(most)s
        ) AS task
        GROUP BY 1, 2, 3
    ) AS task
    WHERE (%(names)s::text[] IS NULL OR task.name IN (SELECT unnest(%(names)s::text[])))
      AND task.name <> ALL ((SELECT names FROM really_paused)::text[])
    GROUP BY 1, 2, 3
    ORDER BY tasks DESC
    LIMIT 20
)
SELECT {schema.}tasklib_wake_for(queue, name, required_capabilities, tasks, %(worker)s::text) FROM waiting
UNION ALL
SELECT {schema.}tasklib_wake_all() FROM first_behind HAVING count(*) > 20
