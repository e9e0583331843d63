-- Tasks that ended, the CTE `ended` (id, state, node, reports_to), arrive at the gates that count them: one row for each
-- gate, node and statement, written by the statement that ended them. Only terminal states arrive.
reported AS (
    INSERT INTO {schema.}arrivals (gate, node, completed, failed, culprit)
    SELECT told.gate, node, count(*) FILTER (WHERE state = 'completed'), count(*) FILTER (WHERE state <> 'completed'),
           (array_agg(id) FILTER (WHERE state <> 'completed'))[1]
    FROM ended
    CROSS JOIN LATERAL unnest(reports_to) AS told (gate)
    WHERE reports_to IS NOT NULL AND state IN ('completed', 'cancelled', 'dead_letter')
    GROUP BY told.gate, node
    RETURNING gate
)
