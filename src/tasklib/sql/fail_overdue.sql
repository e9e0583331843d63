-- Attempts well past their timeout whose worker lives but doesn't act: it is wedged. The attempt fails as timed out,
-- and whatever that worker still says about it is stale.
WITH {include leader},
overdue AS (
    SELECT id,
           cancel_requested_at IS NOT NULL AS cancelled,
           cancel_requested_at IS NOT NULL OR retry_count >= max_retries AS ends,
           'timeout' AS outcome,
           format('TaskTimeout: the attempt ran longer than its timeout of %%s s, and worker %%s did not end it',
                  timeout_seconds, worker_id) AS error
    FROM {schema.}tasks
    WHERE EXISTS (SELECT FROM leader)
      AND state = 'running'
      AND started_at + make_interval(secs => timeout_seconds + %(grace)s) < now()
    ORDER BY locked_until
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
changed AS (
    UPDATE {schema.}tasks AS task
    SET state = CASE WHEN cancelled THEN 'cancelled' WHEN ends THEN 'dead_letter' ELSE 'failed' END,
        error = attempt.error,
        retry_count = task.retry_count + CASE WHEN ends THEN 0 ELSE 1 END,
        next_retry_at = CASE WHEN ends THEN NULL ELSE now() + make_interval(secs => %(delay)s) END,
        completed_at = CASE WHEN ends THEN now() END,
        timeout_seconds = CASE WHEN ends THEN task.timeout_seconds
            ELSE least(ceil(task.timeout_seconds * 1.5), 2147483647)::int END,
        history = {include history},
        worker_id = NULL,
        locked_until = NULL
    FROM overdue AS attempt
    WHERE task.id = attempt.id
    RETURNING task.id::text, task.name, task.state, {include wake},
              queue, priority, task.state AS outcome, attempt.outcome AS reason
),
{include tallied}
SELECT id, name, state FROM changed
