-- Lease up to `limit` due tasks of the lanes this worker serves: by effective priority, then first come first served.
WITH RECURSIVE {include lanes},
-- Waiting raises a lane's head to medium, then to high. Each lane offers the rows that stand as high as its head, so
-- comparing heads is enough; what waits behind them is offered by the next claim.
ready AS (
    SELECT ours.*,
           {schema.}tasklib_effective_priority(priority, due, medium_after, high_after, now()) AS effective_priority,
           CASE WHEN priority < 100 AND due <= high_since THEN high_since
                WHEN priority < 0 AND due <= medium_since THEN medium_since
                ELSE now() END AS offered_until
    FROM ours
    CROSS JOIN {include thresholds}
    CROSS JOIN LATERAL (SELECT
        now() - make_interval(secs => high_after + CASE WHEN priority < 0 THEN medium_after ELSE 0 END) AS high_since,
        now() - make_interval(secs => medium_after) AS medium_since
    ) AS since
    WHERE due <= now()
    ORDER BY effective_priority DESC, due
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
          AND {due} <= ready.offered_until
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
