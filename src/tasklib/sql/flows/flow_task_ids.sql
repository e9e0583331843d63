-- The ids of a flow's tasks by node, in the order of submission.
SELECT node, id::text FROM {schema.}tasks WHERE flow = %(id)s::text::uuid ORDER BY node, id
