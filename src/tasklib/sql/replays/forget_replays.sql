-- The oldest replay that ended long ago goes, with its list of tasks: a batch of that at a time, at last its row.
WITH {include leader},
old AS (
    SELECT id FROM {schema.}replays
    WHERE EXISTS (SELECT FROM leader) AND settled AND ended_at < now() - make_interval(secs => %(age)s)
    ORDER BY id
    LIMIT 1
    FOR UPDATE
),
batch AS (
    SELECT known.task FROM {schema.}replayed_tasks AS known WHERE known.replay = (SELECT id FROM old)
    ORDER BY known.task
    LIMIT %(limit)s
),
gone AS (
    DELETE FROM {schema.}replayed_tasks AS known
    WHERE known.replay = (SELECT id FROM old) AND known.task IN (SELECT task FROM batch)
    RETURNING 1
),
forgotten AS (
    DELETE FROM {schema.}replays
    WHERE id = (SELECT id FROM old) AND (SELECT count(*) FROM batch) < %(limit)s
    RETURNING 1
)
SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM forgotten)
