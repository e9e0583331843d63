-- Counts for each time step, by outcome; steps without events are included.
WITH {include stats_recent}
SELECT moment, sums.*
FROM bounds
CROSS JOIN LATERAL generate_series(since, until - interval '1 us', make_interval(secs => %(step)s::int)) AS moment
LEFT JOIN (
    SELECT step, level, outcome, reason, {include stats_sums}
    FROM recent
    GROUP BY step, level, outcome, reason
) AS sums ON sums.step = moment
ORDER BY moment, level, outcome, reason
