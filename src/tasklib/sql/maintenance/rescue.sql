-- Attempts that lost their worker: its lease ran out, or it is dead. State, holder and expiry are checked in this one
-- statement, on the locked row, so a task that was completed or extended meanwhile is left alone. A lost attempt uses no
-- retry. It counts as a crash if its function may have begun; what has not begun goes back as it was before the claim.
-- A task is given up only if the beginning of its lost attempt is on record: as poison, or because it runs at most once.
WITH {include leader},
concerned AS (
    SELECT DISTINCT worker_id
    FROM {schema.}tasks AS task
    WHERE EXISTS (SELECT FROM leader)
      AND state = 'running'
      AND (locked_until < now()
           OR EXISTS (SELECT FROM {schema.}workers
                      WHERE workers.id = task.worker_id AND reported_status = 'dead'))
),
{include held},
lost AS (
    SELECT task.id,
           cancel_requested_at IS NOT NULL AS cancelled,
           {include may_have_begun} AS begun,
           cancel_requested_at IS NOT NULL
               OR {include begun} AND (at_most_once IS TRUE OR crash_count + 1 >= %(crash_limit)s) AS ends,
           cancel_requested_at IS NULL AND {include begun} AND at_most_once IS NOT TRUE
               AND crash_count + 1 >= %(crash_limit)s AS poison,
           'lost' AS outcome,
           format('worker %%s was lost in attempt %%s%%s', worker_id, retry_count + crash_count + 1,
                  CASE WHEN {include begun} AND at_most_once IS TRUE
                       THEN ', after it had begun. The task runs at most once, so it is not retried' END) AS error
    FROM held
    JOIN {schema.}tasks AS task ON task.id = held.id
    WHERE {still_running}
      AND (locked_until < now()
           OR EXISTS (SELECT FROM {schema.}workers
                      WHERE workers.id = task.worker_id AND reported_status = 'dead'))
    -- The last first: then the places of the others are the same in the next batch.
    ORDER BY held.place DESC
    LIMIT %(limit)s
    FOR UPDATE OF task SKIP LOCKED
),
changed AS (
    UPDATE {schema.}tasks AS task
    SET state = CASE WHEN cancelled THEN 'cancelled' WHEN ends THEN 'dead_letter'
                     WHEN attempt.begun OR task.next_retry_at IS NOT NULL THEN 'failed' ELSE 'pending' END,
        error = CASE WHEN attempt.begun THEN {include poison} ELSE task.error END,
        crash_count = task.crash_count + attempt.begun::int,
        next_retry_at = CASE WHEN ends THEN NULL WHEN attempt.begun THEN now() ELSE task.next_retry_at END,
        started_at = CASE WHEN attempt.begun THEN task.started_at END,
        completed_at = CASE WHEN ends THEN now() END,
        timeout_seconds = CASE WHEN attempt.begun AND NOT ends
            THEN least(ceil(task.timeout_seconds * 1.5), 2147483647)::int ELSE task.timeout_seconds END,
        history = CASE WHEN attempt.begun THEN {include history} ELSE task.history END,
        worker_id = NULL,
        locked_until = NULL
    FROM lost AS attempt
    WHERE task.id = attempt.id
    RETURNING task.id::text, task.name, task.state, {include wake}, queue, priority,
              CASE WHEN attempt.begun OR cancelled THEN task.state ELSE 'released' END AS outcome,
              CASE WHEN attempt.begun THEN attempt.outcome ELSE '' END AS reason
),
{include counted}
SELECT id, name, state FROM changed
