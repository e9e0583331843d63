-- What was counted in the last while: from the deltas and from each span, none of which holds what another does. The
-- first step of time is a whole one.
bounds AS (
    SELECT to_timestamp(floor(extract(epoch FROM now() - make_interval(secs => %(seconds)s::float8)) / %(step)s::int)
                        * %(step)s::int) AS since
),
recent AS (
    SELECT to_timestamp(floor(extract(epoch FROM start) / %(step)s::int) * %(step)s::int) AS step, told.*
    FROM bounds
    CROSS JOIN LATERAL (
        SELECT at AS start, name, queue, level, outcome, reason, count, seconds, waited, buckets, waits
        FROM {schema.}stats_deltas
        WHERE at >= since
        UNION ALL
        SELECT start, name, queue, level, outcome, reason, count, seconds, waited, buckets, waits
        FROM {schema.}stats
        WHERE span = ANY ('{60,600,3600}'::int[]) AND start >= since
    ) AS told
    WHERE (%(name)s::text IS NULL OR name = %(name)s::text)
      AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
)
