-- Lease up to `limit` due tasks of the lanes this worker serves: by effective priority, then first come first served.
WITH RECURSIVE {include lanes},
-- Waiting raises tasks to medium, then to high, oldest first: so a lane is up to three bands of one height each, and
-- comparing their heads is enough. The band of the lane's head has the same head; only a lane with raised tasks costs
-- a look for where its next band begins.
ready AS (
    SELECT queue, name, required_capabilities, priority, since, until, effective_priority
    FROM ours
    CROSS JOIN {include thresholds}
    CROSS JOIN LATERAL (SELECT
        now() - make_interval(secs => high_after + CASE WHEN priority < 0 THEN medium_after ELSE 0 END) AS high_since,
        now() - make_interval(secs => medium_after) AS medium_since
    ) AS raised
    CROSS JOIN LATERAL (
        SELECT '-infinity'::timestamptz AS since, high_since AS until, 100 AS effective_priority WHERE priority < 100
        UNION ALL
        SELECT high_since, medium_since, 0 WHERE priority < 0
        UNION ALL
        SELECT CASE WHEN priority < 0 THEN medium_since WHEN priority < 100 THEN high_since ELSE '-infinity' END,
               now(), priority
    ) AS band
    CROSS JOIN LATERAL (
        SELECT ours.due AS head WHERE ours.due > since AND ours.due <= until
        UNION ALL
        (SELECT {due}
         FROM {schema.}tasks AS task
         WHERE ours.due <= since
           AND task.state IN ('pending', 'failed')
           AND task.queue = ours.queue
           AND task.name = ours.name
           AND task.required_capabilities = ours.required_capabilities
           AND task.priority = ours.priority
           AND {due} > since
           AND {due} <= until
         ORDER BY {due}, id
         LIMIT 1)
    ) AS first
    WHERE due <= now()
    ORDER BY effective_priority DESC, head
),
-- Rows are locked one by one as the outer limit asks for them, so a claim locks what it takes and no more.
taken AS (
    SELECT offered.id, ready.effective_priority
    FROM ready
    CROSS JOIN LATERAL (
        SELECT id
        FROM {schema.}tasks AS task
        WHERE task.state IN ('pending', 'failed')
          AND task.queue = ready.queue
          AND task.name = ready.name
          AND task.required_capabilities = ready.required_capabilities
          AND task.priority = ready.priority
          AND {due} > ready.since
          AND {due} <= ready.until
        ORDER BY {due}, id
        LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    ) AS offered
    LIMIT %(limit)s
)
UPDATE {schema.}tasks AS task
SET state = 'running',
    worker_id = %(worker)s,
    started_at = now(),
    locked_until = now() + make_interval(secs => %(lease)s),
    lease_token = lease_token + 1
FROM taken
WHERE task.id = taken.id
RETURNING task.id::text, task.name, task.kwargs::text, task.lease_token, task.retry_count, task.max_retries,
          task.timeout_seconds, task.crash_count, task.priority, taken.effective_priority, task.queue,
          task.trace_context::text, {due}
