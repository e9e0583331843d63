-- Record failed attempts. The row decides whether a retry is left, and whether the task was cancelled; the worker
-- says how long to wait for it, and whether the attempt may be repeated at all. What runs at most once has no retries.
-- An attempt that was throttled uses none, and holds its limits for that time.
WITH attempt AS (
    SELECT * FROM (
        -- Guarded and locked before it is judged, in the order of ids: a cancel that comes at the same moment is seen or
        -- waits, and what is written below is still ours. What another transaction has locked is left for later, so that
        -- the others don't wait for it.
        SELECT reported.id, reported.error, outcome, delay, now() + make_interval(secs => delay) AS retry_at, now() AS moment,
               crashed, grows, holds,
               task.cancel_requested_at IS NOT NULL AS cancelled,
               task.cancel_requested_at IS NOT NULL OR NOT retriable OR ({include begun} AND task.at_most_once IS TRUE)
                   OR CASE WHEN crashed THEN task.crash_count + 1 >= %(crash_limit)s
                           WHEN outcome = 'throttled' THEN false
                           ELSE task.retry_count >= task.max_retries END AS ends,
               task.cancel_requested_at IS NULL AND crashed AND task.crash_count + 1 >= %(crash_limit)s AS poison
        FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(errors)s::text[], %(outcomes)s::text[],
                    %(delays)s::float8[], %(retriable)s::bool[], %(crashed)s::bool[], %(grows)s::bool[], %(limits)s::text[])
                 AS reported (id, token, error, outcome, delay, retriable, crashed, grows, holds)
        JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[reported.id])
        WHERE {still_running} AND task.lease_token = reported.token AND task.worker_id = %(worker)s
        ORDER BY reported.id
        FOR UPDATE OF task SKIP LOCKED
    ) AS locked
),
ended AS (
    UPDATE {schema.}tasks AS task
    SET state = CASE WHEN cancelled THEN 'cancelled' WHEN ends THEN 'dead_letter' ELSE 'failed' END,
        error = (SELECT {include poison}),
        -- A process that was lost is not the function's failure: it uses no retry.
        retry_count = task.retry_count
            + CASE WHEN ends OR attempt.crashed OR attempt.outcome = 'throttled' THEN 0 ELSE 1 END,
        crash_count = task.crash_count + attempt.crashed::int,
        next_retry_at = CASE WHEN NOT ends THEN attempt.retry_at END,
        completed_at = CASE WHEN ends THEN attempt.moment END,
        -- An attempt that ran out of time, or lost its process, gets half as much again.
        timeout_seconds = CASE WHEN attempt.grows AND NOT ends
            THEN least(ceil(task.timeout_seconds * 1.5), 2147483647)::int ELSE task.timeout_seconds END,
        history = (SELECT {include history}),
        worker_id = NULL,
        locked_until = NULL
    FROM attempt
    WHERE task.id = ANY (ARRAY[attempt.id])
    RETURNING task.id, task.state, task.node, task.reports_to, task.lane, attempt.outcome, attempt.delay, attempt.holds
),
{include reported},
{include throttled},
{include freed}
SELECT id::text, state FROM ended
