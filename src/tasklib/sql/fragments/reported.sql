-- Tasks that ended, the CTE `ended` (id, state, node, reports_to), arrive at the gates that count them: one row for each
-- gate, node and statement, written by the statement that ended them. Only terminal states arrive. Tasks of one group
-- report to the same gates, and are added up before these are looked at one by one.
reported AS (
    INSERT INTO {schema.}arrivals (gate, node, completed, failed, culprit)
    SELECT told.gate, node, sum(completed), sum(failed), (array_agg(culprit) FILTER (WHERE culprit IS NOT NULL))[1]
    FROM (
        SELECT reports_to, node, count(*) FILTER (WHERE state = 'completed') AS completed,
               count(*) FILTER (WHERE state <> 'completed') AS failed,
               (array_agg(id) FILTER (WHERE state <> 'completed'))[1] AS culprit
        FROM ended
        WHERE reports_to IS NOT NULL AND state IN ('completed', 'cancelled', 'dead_letter')
        GROUP BY reports_to, node
    ) AS alike
    CROSS JOIN LATERAL unnest(reports_to) AS told (gate)
    GROUP BY told.gate, node
    RETURNING gate
)
