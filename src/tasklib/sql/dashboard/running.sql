-- What runs on some workers, by the index of leases.
SELECT id, name, queue, worker_id, started_at, lease_token
FROM (
    SELECT * FROM {schema.}tasks
    WHERE state = 'running'
    ORDER BY locked_until
    LIMIT %(look)s
) AS task
WHERE worker_id = ANY (%(workers)s::text[])
