-- Tasks that hold places in a limit, those that have run longest first.
SELECT task.id::text, task.name, task.queue, place.key, task.state, task.started_at, task.worker_id
FROM {schema.}places AS place
JOIN {schema.}tasks AS task ON task.id = place.task
WHERE place.limit_name = %(name)s
  AND (task.lease_token = place.token AND task.state = 'running'
       OR place.held AND task.state IN ('pending', 'failed') AND task.lease_token IN (place.token, place.token - 1))
ORDER BY task.started_at NULLS FIRST, task.id
LIMIT %(most)s
