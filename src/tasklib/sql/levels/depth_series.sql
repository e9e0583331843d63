-- How deep the queues were at each level, or each of them, at the end of each step of time; or the tasks of one name. A step in which the
-- leader counted, and nothing waited, has zeros; one in which it didn't count has nulls.
WITH bounds AS (
    SELECT to_timestamp(floor(extract(epoch FROM now() - make_interval(secs => %(ago)s::float8 + %(seconds)s::float8))
                              / %(step)s::int) * %(step)s::int) AS since,
           to_timestamp(floor(extract(epoch FROM now() - make_interval(secs => %(ago)s::float8)) / %(step)s::int)
                        * %(step)s::int + %(step)s::int) AS until
),
-- When the leader counted last in each step. Rows of 0.1.0 have no mark of their own.
looks AS (
    SELECT to_timestamp(floor(extract(epoch FROM minute) / %(step)s::int) * %(step)s::int) AS step, max(minute) AS minute
    FROM {schema.}depths
    WHERE minute >= (SELECT since FROM bounds) AND minute < (SELECT until FROM bounds)
    GROUP BY step
),
counted AS (
    SELECT looks.step, CASE WHEN %(by_queue)s::bool THEN counted.queue ELSE counted.level END AS part, sum(counted.depth)::bigint AS depth, bool_or(counted.capped) AS capped,
           max(counted.oldest_age_seconds) AS oldest
    FROM looks
    JOIN {schema.}depths AS counted ON counted.minute = looks.minute
    WHERE counted.level <> ''
      AND CASE WHEN %(name)s::text IS NULL THEN counted.name = '' ELSE counted.name = %(name)s::text END
      AND (%(queue)s::text IS NULL OR counted.queue = %(queue)s::text)
    GROUP BY looks.step, part
)
SELECT moment, looks.step IS NOT NULL, part, depth, capped, oldest
FROM bounds
CROSS JOIN LATERAL generate_series(since, until - interval '1 us', make_interval(secs => %(step)s::int)) AS moment
LEFT JOIN looks ON looks.step = moment
LEFT JOIN counted ON counted.step = moment
ORDER BY moment, part
