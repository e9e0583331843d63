-- An id is used once: a second time, it is the same registration whose answer was lost. The first worker of a deploy
-- announces that, too.
WITH deployed AS (
    INSERT INTO {schema.}deploys (deployed_at)
    SELECT %(deployed_at)s::timestamptz WHERE %(deployed_at)s::timestamptz IS NOT NULL
    ON CONFLICT (deployed_at) DO NOTHING
)
INSERT INTO {schema.}worker_registrations
    (id, queues, names, capabilities, capacity, version, host, pid, token_id, heartbeat_timeout_seconds,
     tzdata, may_begin)
VALUES (%(id)s, %(queues)s::text[], %(names)s::text[], %(capabilities)s::text[], %(capacity)s, %(version)s, %(host)s,
        %(pid)s, %(token)s::uuid, %(heartbeat_timeout)s, %(tzdata)s,
        -- Over HTTP nothing is known of the order in which a worker begins its tasks.
        CASE WHEN %(token)s::uuid IS NULL THEN %(capacity)s END)
ON CONFLICT (id) DO NOTHING
