-- How deep the queues were at each level at the end of each step of time.
WITH bounds AS (
    SELECT to_timestamp(floor(extract(epoch FROM now() - make_interval(secs => %(seconds)s::float8)) / %(step)s::int)
                        * %(step)s::int) AS since
),
looks AS (
    SELECT DISTINCT ON (step, queue, level)
           to_timestamp(floor(extract(epoch FROM minute) / %(step)s::int) * %(step)s::int) AS step,
           queue, level, depth, capped, oldest_age_seconds
    FROM {schema.}depths
    WHERE minute >= (SELECT since FROM bounds) AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
    ORDER BY step, queue, level, minute DESC
)
SELECT moment, level, sum(depth)::bigint, bool_or(capped), max(oldest_age_seconds)
FROM bounds
CROSS JOIN LATERAL generate_series(since, now(), make_interval(secs => %(step)s::int)) AS moment
LEFT JOIN looks ON looks.step = moment
GROUP BY moment, level
ORDER BY moment, level
