-- Finished tasks that run again, the CTE `revived` (was, node, reports_to, waits_for), take their reports back. And if
-- one waits at a gate, that gate is looked at: it may have been decided meanwhile.
unreported AS (
    INSERT INTO {schema.}arrivals (gate, node, completed, failed)
    SELECT told.gate, node, -count(*) FILTER (WHERE was = 'completed'), -count(*) FILTER (WHERE was <> 'completed')
    FROM revived
    CROSS JOIN LATERAL unnest(reports_to) AS told (gate)
    WHERE reports_to IS NOT NULL
    GROUP BY told.gate, node
    UNION ALL
    SELECT DISTINCT waits_for, NULL, 0, 0 FROM revived WHERE waits_for IS NOT NULL
)
