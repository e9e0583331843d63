-- Attempts that lost their worker: its lease ran out, or it is dead. State, holder and expiry are checked in this one
-- statement, on the locked row, so a task that was completed or extended meanwhile is left alone. A crash uses a retry.
WITH {include leader},
lost AS (
    SELECT id,
           cancel_requested_at IS NOT NULL AS cancelled,
           cancel_requested_at IS NOT NULL OR retry_count >= max_retries OR crash_count + 1 >= %(crash_limit)s AS ends,
           cancel_requested_at IS NULL AND crash_count + 1 >= %(crash_limit)s AS poison,
           'lost' AS outcome,
           format('worker %%s was lost in attempt %%s', worker_id, retry_count + 1) AS error
    FROM {schema.}tasks AS task
    WHERE EXISTS (SELECT FROM leader)
      AND state = 'running'
      AND (locked_until < now()
           OR EXISTS (SELECT FROM {schema.}workers
                      WHERE workers.id = task.worker_id AND reported_status = 'dead'))
    ORDER BY locked_until
    LIMIT %(limit)s
    FOR UPDATE OF task SKIP LOCKED
),
changed AS (
    UPDATE {schema.}tasks AS task
    SET state = CASE WHEN cancelled THEN 'cancelled' WHEN ends THEN 'dead_letter' ELSE 'failed' END,
        error = {include poison},
        retry_count = task.retry_count + CASE WHEN ends THEN 0 ELSE 1 END,
        crash_count = task.crash_count + 1,
        next_retry_at = CASE WHEN ends THEN NULL ELSE now() END,
        completed_at = CASE WHEN ends THEN now() END,
        timeout_seconds = CASE WHEN ends THEN task.timeout_seconds
            ELSE least(ceil(task.timeout_seconds * 1.5), 2147483647)::int END,
        history = {include history},
        worker_id = NULL,
        locked_until = NULL
    FROM lost AS attempt
    WHERE task.id = attempt.id
    RETURNING task.id::text, task.name, task.state, {include wake},
              queue, priority, task.state AS outcome, attempt.outcome AS reason
),
{include tallied}
SELECT id, name, state FROM changed
