-- The gates of a flow that tasks wait for. Arrivals that are not counted yet are added.
SELECT gate.id::text, policy, nodes, waiters, gate.expected + COALESCE(arrived.expected, 0), sealed,
       gate.completed + COALESCE(arrived.completed, 0), gate.failed + COALESCE(arrived.failed, 0),
       opened_at, failed_at, culprit::text
FROM {schema.}gates AS gate
CROSS JOIN LATERAL {include uncounted} AS arrived
WHERE flow = %(id)s::text::uuid AND kind NOT IN ('flow', 'parent')
ORDER BY gate.id
