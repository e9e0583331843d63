-- Spans that are old enough become part of longer ones, whole longer ones only; or, with nothing to go `into`, are
-- forgotten. The total has them already. Those of single workers end with the spans of ten minutes.
WITH {include leader},
moved AS (
    DELETE FROM {schema.}stats
    WHERE EXISTS (SELECT FROM leader)
      AND span = %(span)s::int
      AND start < to_timestamp(floor(extract(epoch FROM now() - make_interval(secs => %(age)s))
                                     / COALESCE(%(into)s::int, 1)) * COALESCE(%(into)s::int, 1))
    RETURNING *
),
stored AS (
    INSERT INTO {schema.}stats AS stat
        (span, start, name, queue, level, outcome, reason, worker, count, seconds, waited, buckets, waits)
    SELECT %(into)s::int, to_timestamp(floor(extract(epoch FROM start) / %(into)s::int) * %(into)s::int),
           name, queue, level, outcome, reason, worker, {include stats_sums}
    FROM moved
    WHERE %(into)s::int IS NOT NULL AND (worker = '' OR %(into)s::int <= 600)
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
    {include stats_stored}
)
SELECT true
