-- What flow_cancel_tasks.sql left out, because another transaction had locked it.
WITH wanted AS (SELECT %(id)s::text::uuid AS id)
SELECT task.id::text
FROM wanted CROSS JOIN LATERAL {include of_flow} AS member
JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[member.id])
WHERE {include to_cancel}
ORDER BY task.id
