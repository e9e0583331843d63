-- Attempts whose lease ran out lost their worker. State, token and expiry are checked in this one statement, on the
-- locked row, so a task that was completed or extended meanwhile is left alone. A crash uses a retry.
WITH expired AS (
    SELECT id,
           cancel_requested_at IS NOT NULL AS cancelled,
           cancel_requested_at IS NOT NULL OR retry_count >= max_retries OR crash_count + 1 >= %(crash_limit)s AS ends,
           'lost' AS outcome,
           format('worker %%s was lost: its lease on attempt %%s ran out at %%s%%s', worker_id, retry_count + 1,
                  to_char(locked_until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                  CASE WHEN crash_count + 1 >= %(crash_limit)s
                       THEN format('; given up as poison after %%s crashes', crash_count + 1) ELSE '' END) AS error
    FROM {schema.}tasks
    WHERE state = 'running' AND locked_until < now()
    ORDER BY locked_until
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
UPDATE {schema.}tasks AS task
SET state = CASE WHEN cancelled THEN 'cancelled' WHEN ends THEN 'dead_letter' ELSE 'failed' END,
    error = attempt.error,
    retry_count = task.retry_count + CASE WHEN ends THEN 0 ELSE 1 END,
    crash_count = task.crash_count + 1,
    next_retry_at = CASE WHEN ends THEN NULL ELSE now() END,
    completed_at = CASE WHEN ends THEN now() END,
    timeout_seconds = CASE WHEN ends THEN task.timeout_seconds
        ELSE least(ceil(task.timeout_seconds * 1.5), 2147483647)::int END,
    history = {include history},
    worker_id = NULL,
    locked_until = NULL
FROM expired AS attempt
WHERE task.id = attempt.id
RETURNING task.id::text, task.name, task.state
