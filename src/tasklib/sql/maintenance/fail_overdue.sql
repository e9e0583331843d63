-- Attempts well past their timeout whose worker lives but doesn't act: it is wedged. Whatever that worker still says
-- about them is stale. If the beginning of an attempt is on record, its function ran out of time, which uses a retry.
-- If not, the function may have stood behind the one that wedged the worker, so it can't be blamed: as with a lost
-- worker, it counts as a crash if it may have begun, and then the next attempt's beginning will be on record.
WITH {include leader},
concerned AS (
    SELECT DISTINCT worker_id
    FROM {schema.}tasks
    WHERE EXISTS (SELECT FROM leader)
      AND state = 'running'
      AND started_at + make_interval(secs => timeout_seconds + %(grace)s) < now()
),
{include held},
overdue AS (
    SELECT task.id,
           cancel_requested_at IS NOT NULL AS cancelled,
           {include may_have_begun} AS begun,
           {include begun} AS known,
           cancel_requested_at IS NOT NULL
               OR {include begun} AND (at_most_once IS TRUE OR retry_count >= max_retries) AS ends,
           CASE WHEN {include begun} THEN 'timeout' ELSE 'lost' END AS outcome,
           format('TaskTimeout: the attempt ran longer than its timeout of %%s s, and worker %%s did not end it',
                  timeout_seconds, worker_id) AS error
    FROM held
    JOIN {schema.}tasks AS task ON task.id = held.id
    WHERE {still_running}
      AND started_at + make_interval(secs => timeout_seconds + %(grace)s) < now()
    ORDER BY held.place DESC
    LIMIT %(limit)s
    FOR UPDATE OF task SKIP LOCKED
),
changed AS (
    UPDATE {schema.}tasks AS task
    SET state = CASE WHEN cancelled THEN 'cancelled' WHEN ends THEN 'dead_letter'
                     WHEN attempt.begun OR task.next_retry_at IS NOT NULL THEN 'failed' ELSE 'pending' END,
        error = CASE WHEN attempt.begun THEN attempt.error ELSE task.error END,
        retry_count = task.retry_count + (known AND NOT ends)::int,
        crash_count = task.crash_count + (attempt.begun AND NOT known)::int,
        next_retry_at = CASE WHEN ends THEN NULL
            WHEN attempt.begun THEN now() + make_interval(secs => %(delay)s) ELSE task.next_retry_at END,
        started_at = CASE WHEN attempt.begun THEN task.started_at END,
        completed_at = CASE WHEN ends THEN now() END,
        timeout_seconds = CASE WHEN attempt.begun AND NOT ends
            THEN least(ceil(task.timeout_seconds * 1.5), 2147483647)::int ELSE task.timeout_seconds END,
        history = CASE WHEN attempt.begun THEN {include history} ELSE task.history END,
        worker_id = NULL,
        locked_until = NULL
    FROM overdue AS attempt
    WHERE task.id = attempt.id
    RETURNING task.id::text, task.name, task.state, {include wake}, queue, priority,
              CASE WHEN attempt.begun OR cancelled THEN task.state ELSE 'released' END AS outcome,
              CASE WHEN attempt.begun THEN attempt.outcome ELSE '' END AS reason
),
{include counted}
SELECT id, name, state FROM changed
