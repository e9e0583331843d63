-- Move deltas into the minutes and into the total, in one statement: a reader that sums both sees each delta once.
WITH {include leader},
moved AS (
    DELETE FROM {schema.}stats_deltas
    WHERE id = ANY (ARRAY(
        SELECT id FROM {schema.}stats_deltas WHERE EXISTS (SELECT FROM leader) LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
    RETURNING *
),
-- Of a very large fleet the first workers are told apart, and the others counted together.
of_workers AS (
    SELECT CASE WHEN dense_rank() OVER (ORDER BY worker) <= %(most_workers)s THEN worker ELSE %(other)s::text END AS label, *
    FROM moved
    WHERE worker <> '' AND outcome IN ('completed', 'failed', 'dead_letter', 'cancelled', 'released')
),
stored AS (
    INSERT INTO {schema.}stats AS stat
        (span, start, name, queue, level, outcome, reason, worker, count, seconds, waited, buckets, waits)
    SELECT 60, to_timestamp(floor(extract(epoch FROM at) / 60) * 60), name, queue, level, outcome, reason, '',
           {include stats_sums}
    FROM moved
    GROUP BY 1, 2, 3, 4, 5, 6, 7
    UNION ALL
    SELECT 0, to_timestamp(0), '', '', level, outcome, reason, '', {include stats_sums}
    FROM moved
    GROUP BY level, outcome, reason
    UNION ALL
    SELECT 60, to_timestamp(floor(extract(epoch FROM at) / 60) * 60), '', '', '', outcome, '', label,
           {include stats_sums}
    FROM of_workers
    GROUP BY 1, 2, outcome, label
    {include stats_stored}
),
-- For breakers, which count by the second.
for_breakers AS (
    INSERT INTO {schema.}breaker_counts (name, at, attempts, failed)
    SELECT name, moved.at, sum(count), sum(CASE WHEN outcome = 'completed' THEN 0 ELSE count END)
    FROM moved
    WHERE ({include breaker_counts})
      AND name IN (SELECT breaker.name FROM {schema.}breakers AS breaker)
    GROUP BY name, moved.at
)
SELECT count(*) FROM moved
