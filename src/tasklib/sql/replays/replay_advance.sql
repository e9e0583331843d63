-- The next dead letters of one replay start afresh, each as replay.sql would have it: as many as its rate allows by now,
-- one if it is the canary. No more than `look` dead letters are read. Position, rate and counts are in the replay's row,
-- locked here and written by this statement: a leader that dies leaves nothing half done, and a pause or a stop comes
-- before it or after it. A task is taken once: it was given up before the replay began, and is not on the list yet.
WITH {include leader},
job AS MATERIALIZED (
    SELECT *, greatest(next_at, now() - make_interval(secs => %(catch_up)s)) AS free_at
    FROM {schema.}replays
    WHERE EXISTS (SELECT FROM leader)
      AND id = %(replay)s::text::uuid
      AND status = 'running'
      AND next_at <= now()
      AND canary IS DISTINCT FROM 'waiting'
    FOR UPDATE
),
allowed AS (
    SELECT CASE WHEN canary = 'wanted' THEN 1
                WHEN per_minute IS NULL THEN %(limit)s
                ELSE least(%(limit)s, 1 + floor(extract(epoch FROM now() - free_at) * per_minute / 60)) END::int AS number
    FROM job
),
looked AS MATERIALIZED (
    SELECT * FROM {schema.}tasks AS task
    WHERE task.state = 'dead_letter'
      AND task.completed_at < (SELECT before FROM job)
      AND (task.completed_at, task.id) > ((SELECT COALESCE(after_time, '-infinity') FROM job),
                                          (SELECT COALESCE(after_id, '00000000-0000-0000-0000-000000000000') FROM job))
    ORDER BY task.completed_at, task.id
    LIMIT %(look)s
),
candidate AS MATERIALIZED (
    SELECT task.id, task.completed_at
    FROM looked AS task
    WHERE {include dead_letters_chosen}
      AND NOT EXISTS (SELECT FROM {schema.}replayed_tasks AS known
                      WHERE known.replay = %(replay)s::text::uuid AND known.task = task.id)
    ORDER BY task.completed_at, task.id
    LIMIT (SELECT number FROM allowed)
),
-- Rows that another transaction has locked are left for another pass.
batch AS (
    SELECT * FROM (
        SELECT task.id
        FROM candidate
        JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[candidate.id])
        WHERE COALESCE(task.state, '') = 'dead_letter'
          AND task.completed_at = candidate.completed_at
        ORDER BY task.id
        FOR UPDATE OF task SKIP LOCKED
    ) AS locked
),
changed AS (
    UPDATE {schema.}tasks AS task
    SET {include replayed}
    FROM batch
    WHERE task.id = ANY (ARRAY[batch.id])
    RETURNING task.id, task.required_capabilities, name, queue, priority, 'replayed' AS outcome, 'dead_letter' AS reason,
              'dead_letter' AS was, task.node, task.reports_to, task.waits_for
),
revived AS (
    SELECT was, node, reports_to, waits_for FROM changed
),
{include unreported},
{include steps_replayed},
{include counted},
listed AS (
    INSERT INTO {schema.}replayed_tasks (replay, task)
    SELECT %(replay)s::text::uuid, id FROM (SELECT id, {include wake_one} FROM changed AS task) AS told
),
seen AS (
    SELECT (SELECT count(*) FROM changed) AS taken,
           (SELECT count(*) FROM candidate) > (SELECT count(*) FROM changed) AS left_some,
           (SELECT count(*) FROM candidate) >= (SELECT number FROM allowed) AS is_full,
           (SELECT count(*) FROM looked) >= %(look)s AS is_cut
),
-- Where the next batch begins: behind the last one taken, or the last one read; null at the end of a pass.
place AS (
    SELECT completed_at, id FROM candidate WHERE (SELECT is_full FROM seen)
    UNION ALL
    SELECT completed_at, id FROM looked WHERE (SELECT is_cut AND NOT is_full FROM seen)
    ORDER BY completed_at DESC, id DESC
    LIMIT 1
)
UPDATE {schema.}replays AS replay
SET replayed = replay.replayed + taken,
    next_at = (SELECT CASE WHEN replay.per_minute IS NULL OR taken = 0 THEN replay.next_at
                           ELSE job.free_at + make_interval(secs => taken * 60 / replay.per_minute) END),
    after_time = (SELECT completed_at FROM place),
    after_id = (SELECT id FROM place),
    missed = (replay.missed OR left_some) AND (is_full OR is_cut),
    canary = CASE WHEN replay.canary = 'wanted' AND taken > 0 THEN 'waiting' ELSE replay.canary END,
    canary_task = CASE WHEN replay.canary = 'wanted' AND taken > 0 THEN (SELECT id FROM changed) ELSE replay.canary_task END,
    status = CASE WHEN is_full OR is_cut OR replay.missed OR left_some THEN replay.status ELSE 'done' END,
    ended_at = (SELECT CASE WHEN is_full OR is_cut OR replay.missed OR left_some THEN NULL ELSE now() END)
FROM job, seen
WHERE replay.id = job.id
RETURNING taken, replay.status, is_full OR is_cut
