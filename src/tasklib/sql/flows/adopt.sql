-- A running durable task reports to a gate of the flow that it is about to wait for. Read whose the task is.
UPDATE {schema.}tasks AS task
SET reports_to = array_append(COALESCE(task.reports_to, '{}'), %(gate)s::text::uuid)
WHERE task.id = %(id)s::text::uuid
  AND {still_running}
  AND task.lease_token = %(token)s::bigint
  AND task.worker_id = %(worker)s
RETURNING task.id::text
