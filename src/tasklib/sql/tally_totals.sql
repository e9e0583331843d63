-- All that was ever counted. A leader moves deltas into the total in one step, so this never goes down.
SELECT level, outcome, reason, {include tally_sums}
FROM (
    SELECT level, outcome, reason, count, seconds, waited, buckets, waits FROM {schema.}tally_deltas
    UNION ALL
    SELECT level, outcome, reason, count, seconds, waited, buckets, waits FROM {schema.}tallies WHERE span = 0
) AS tally
GROUP BY level, outcome, reason
ORDER BY level, outcome, reason
