-- Attempts that the leader ends in their worker's stead: what may have begun fails, is given up or cancelled; what has
-- not begun goes back as it was before the claim. The CTE `attempt` has the verdicts; `known` says that the function
-- itself ran out of time, which uses a retry and is no crash.
changed AS (
    UPDATE {schema.}tasks AS task
    SET state = CASE WHEN cancelled THEN 'cancelled' WHEN ends THEN 'dead_letter'
                     WHEN attempt.begun OR task.next_retry_at IS NOT NULL THEN 'failed' ELSE 'pending' END,
        error = (SELECT CASE WHEN attempt.begun THEN {include poison} ELSE task.error END),
        retry_count = task.retry_count + (known AND NOT ends)::int,
        crash_count = task.crash_count + (attempt.begun AND NOT known)::int,
        next_retry_at = CASE WHEN ends THEN NULL WHEN attempt.begun THEN attempt.retry_at ELSE task.next_retry_at END,
        started_at = CASE WHEN attempt.begun THEN task.started_at END,
        completed_at = (SELECT CASE WHEN ends THEN now() END),
        timeout_seconds = CASE WHEN attempt.begun AND NOT ends
            THEN least(ceil(task.timeout_seconds * 1.5), 2147483647)::int ELSE task.timeout_seconds END,
        history = (SELECT CASE WHEN attempt.begun THEN {include history} ELSE task.history END),
        worker_id = NULL,
        locked_until = NULL
    FROM attempt
    WHERE task.id = ANY (ARRAY[attempt.id])
    RETURNING task.id, task.name, task.state, queue, priority, task.node, task.reports_to,
              CASE WHEN attempt.begun OR cancelled THEN task.state ELSE 'released' END AS outcome,
              CASE WHEN attempt.begun THEN attempt.outcome ELSE '' END AS reason
),
ended AS (
    SELECT id, state, node, reports_to FROM changed
),
{include reported},
{include freed},
{include counted}
SELECT id, name, state FROM (SELECT id::text, name, state, {include wake} FROM changed) AS told
