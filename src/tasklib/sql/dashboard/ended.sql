-- How these attempts ended: a row that has been leased again, or still runs, says nothing.
SELECT task.id, task.state, COALESCE(task.completed_at, now())
FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) AS attempt (id, token)
JOIN {schema.}tasks AS task ON task.id = attempt.id AND task.lease_token = attempt.token
WHERE task.state <> 'running'
