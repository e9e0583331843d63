-- The ids of a flow's tasks by node, in the order of submission.
WITH wanted AS (SELECT %(id)s::text::uuid AS id)
SELECT task.node, task.id::text
FROM wanted CROSS JOIN LATERAL {include of_flow} AS member
JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[member.id])
ORDER BY task.node, task.id
