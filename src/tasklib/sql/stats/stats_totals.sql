-- All that was ever counted. A leader moves deltas into the total in one step, so this never goes down.
SELECT level, outcome, reason, {include stats_sums}
FROM (
    SELECT level, outcome, reason, count, seconds, waited, buckets, waits FROM {schema.}stats_deltas
    UNION ALL
    SELECT level, outcome, reason, count, seconds, waited, buckets, waits FROM {schema.}stats WHERE span = 0
) AS stat
GROUP BY level, outcome, reason
ORDER BY level, outcome, reason
