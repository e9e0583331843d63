-- The gates of a flow that tasks wait for.
SELECT id::text, policy, nodes, waiters, expected, sealed, completed, failed, opened_at, failed_at, culprit::text
FROM {schema.}gates
WHERE flow = %(id)s::text::uuid AND kind NOT IN ('flow', 'parent')
ORDER BY id
