-- What runs, by the index of leases.
SELECT id, name, queue, worker_id, started_at, lease_token
FROM {schema.}tasks
WHERE state = 'running'
ORDER BY locked_until
LIMIT %(limit)s
