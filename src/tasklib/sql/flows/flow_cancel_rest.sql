-- What flow_cancel_tasks.sql left out, because another transaction had locked it.
SELECT id::text FROM {schema.}tasks AS task
WHERE task.flow = %(id)s::text::uuid
  AND (task.state IN ('pending', 'failed') OR (task.state = 'running' AND task.cancel_requested_at IS NULL))
ORDER BY task.node, task.id
