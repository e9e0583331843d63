-- What was counted in a while that ended `ago` seconds ago: from the deltas and from each span, none of which holds what
-- another does. The first and the last step of time are whole ones. Spans have the counts of workers in rows of their own.
bounds AS (
    SELECT to_timestamp(floor(extract(epoch FROM now() - make_interval(secs => %(ago)s::float8 + %(seconds)s::float8))
                              / %(step)s::int) * %(step)s::int) AS since,
           to_timestamp(floor(extract(epoch FROM now() - make_interval(secs => %(ago)s::float8)) / %(step)s::int)
                        * %(step)s::int + %(step)s::int) AS until
),
recent AS (
    SELECT to_timestamp(floor(extract(epoch FROM start) / %(step)s::int) * %(step)s::int) AS step, told.*
    FROM bounds
    CROSS JOIN LATERAL (
        SELECT at AS start, name, queue, level, outcome, reason, worker, count, seconds, waited, buckets, waits
        FROM {schema.}stats_deltas
        WHERE at >= since AND at < until AND (worker <> '' OR NOT %(of_workers)s::boolean)
        UNION ALL
        SELECT start, name, queue, level, outcome, reason, worker, count, seconds, waited, buckets, waits
        FROM {schema.}stats
        WHERE span = ANY ('{60,600,3600}'::int[]) AND start >= since AND start < until
          AND (worker <> '') = %(of_workers)s::boolean
    ) AS told
    -- Whether submissions were counted is true of all names and queues.
    WHERE (%(name)s::text IS NULL OR name = %(name)s::text OR outcome = 'arrivals_counted')
      AND (%(queue)s::text IS NULL OR queue = %(queue)s::text OR outcome = 'arrivals_counted')
      AND (%(worker)s::text IS NULL OR worker = %(worker)s::text)
)
