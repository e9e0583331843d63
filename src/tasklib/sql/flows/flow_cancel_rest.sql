-- What flow_cancel_tasks.sql left out, because another transaction had locked it.
WITH wanted AS (SELECT %(id)s::text::uuid AS id)
SELECT task.id::text
FROM wanted CROSS JOIN LATERAL {include of_flow} AS member
JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[member.id])
WHERE task.state IN ('pending', 'failed') OR (task.state = 'running' AND task.cancel_requested_at IS NULL)
ORDER BY task.id
