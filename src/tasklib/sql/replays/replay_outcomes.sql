-- What became of the tasks of one replay: the next `limit` that had not ended are looked at, and those that have are
-- counted, once each. A canary that failed pauses the replay, also if its task will be retried.
WITH {include leader},
job AS MATERIALIZED (
    SELECT *
    FROM {schema.}replays
    WHERE EXISTS (SELECT FROM leader) AND id = %(replay)s::text::uuid AND NOT settled
    FOR UPDATE
),
page AS MATERIALIZED (
    SELECT known.task
    FROM {schema.}replayed_tasks AS known
    WHERE known.replay = (SELECT id FROM job)
      AND known.outcome IS NULL
      AND known.task > COALESCE((SELECT checked_after FROM job), '00000000-0000-0000-0000-000000000000')
    ORDER BY known.task
    LIMIT %(limit)s
),
ended AS MATERIALIZED (
    SELECT page.task, COALESCE(task.state, 'deleted') AS outcome
    FROM page
    LEFT JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[page.task])
    WHERE task.id IS NULL OR task.state IN ('completed', 'cancelled', 'dead_letter')
),
written AS (
    UPDATE {schema.}replayed_tasks AS known
    SET outcome = ended.outcome
    FROM ended
    WHERE known.replay = %(replay)s::text::uuid AND known.task = ended.task
),
verdict AS (
    SELECT CASE WHEN task.state = 'completed' THEN 'passed'
                WHEN task.id IS NULL OR task.state IN ('failed', 'dead_letter', 'cancelled') THEN 'failed' END AS canary,
           COALESCE(task.state, 'deleted') AS state,
           left(split_part(rtrim(task.error, E' \t\r\n'), E'\n', -1), 500) AS error
    FROM job
    LEFT JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[job.canary_task])
    WHERE job.canary = 'waiting'
),
seen AS (
    SELECT count(*) AS looked, count(*) >= %(limit)s AS is_full, max(task::text)::uuid AS last FROM page
),
sums AS (
    SELECT count(*) AS ended, count(*) FILTER (WHERE outcome = 'completed') AS completed,
           count(*) FILTER (WHERE outcome = 'dead_letter') AS failed,
           count(*) FILTER (WHERE outcome IN ('cancelled', 'deleted')) AS dropped
    FROM ended
)
UPDATE {schema.}replays AS replay
SET completed = replay.completed + sums.completed,
    failed = replay.failed + sums.failed,
    dropped = replay.dropped + sums.dropped,
    checked_after = CASE WHEN is_full THEN last END,
    canary = COALESCE((SELECT canary FROM verdict), replay.canary),
    status = CASE WHEN replay.status = 'running' AND (SELECT canary FROM verdict) = 'failed' THEN 'paused'
                  ELSE replay.status END,
    reason = CASE WHEN (SELECT canary FROM verdict) = 'failed' THEN (
                      SELECT concat('the canary is ', replace(state, '_', ' '), COALESCE(': ' || error, '')) FROM verdict)
                  ELSE replay.reason END,
    settled = replay.status IN ('done', 'stopped') AND replay.checked_after IS NULL AND NOT is_full AND looked = sums.ended
FROM job, seen, sums
WHERE replay.id = job.id
RETURNING is_full
