-- An id is used once: a second time, it is the same registration whose answer was lost.
INSERT INTO {schema.}worker_registrations
    (id, queues, names, capabilities, capacity, version, host, pid, token_id, heartbeat_timeout_seconds)
VALUES (%(id)s, %(queues)s::text[], %(names)s::text[], %(capabilities)s::text[], %(capacity)s, %(version)s, %(host)s,
        %(pid)s, %(token)s::uuid, %(heartbeat_timeout)s)
ON CONFLICT (id) DO NOTHING
