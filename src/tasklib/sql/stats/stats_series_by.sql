-- Counts for each time step and queue, name or worker: the busiest ones, and the others together under the label ''.
WITH {include stats_recent},
labelled AS (
    SELECT CASE %(by)s::text WHEN 'name' THEN name WHEN 'worker' THEN worker ELSE queue END AS label, recent.*
    FROM recent
    WHERE %(by)s::text = 'worker' OR name <> ''
),
busiest AS (
    SELECT label FROM labelled
    WHERE outcome IN ('completed', 'failed', 'dead_letter')
    GROUP BY label ORDER BY sum(count) DESC, label LIMIT %(limit)s
)
SELECT moment, sums.label, sums.outcome, sums.count, sums.seconds, sums.waited, sums.buckets, sums.waits
FROM bounds
CROSS JOIN LATERAL generate_series(since, until - interval '1 us', make_interval(secs => %(step)s::int)) AS moment
LEFT JOIN (
    SELECT step, COALESCE(busiest.label, '') AS label, outcome, {include stats_sums}
    FROM labelled
    LEFT JOIN busiest USING (label)
    GROUP BY step, COALESCE(busiest.label, ''), outcome
) AS sums ON sums.step = moment
ORDER BY moment, label, outcome
