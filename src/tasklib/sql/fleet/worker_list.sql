SELECT id, status, queues, names, capabilities, capacity, current_load, version, host, pid, started_at, last_heartbeat,
       drain_requested_at, extract(epoch FROM now() - last_heartbeat)::float8,
       EXISTS (SELECT FROM {schema.}leadership WHERE holder = workers.id AND expires_at > now()),
       status = 'dead' AND reported_status <> 'dead'
FROM {schema.}workers
ORDER BY started_at, id
