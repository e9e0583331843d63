-- The latest failed attempts before `until`, out of a bounded number of rows, each found by an index: dead letters, tasks
-- that wait for a retry, tasks that run again, and the newest tasks, which may have completed after a failure. The owner's
-- are chosen from these.
sampled AS MATERIALIZED (
    (SELECT 'dead_letter' AS source, task.id, task.completed_at
     FROM {schema.}tasks AS task
     WHERE task.state = 'dead_letter' AND task.completed_at < %(until)s::timestamptz
     ORDER BY task.completed_at DESC, task.id DESC
     LIMIT %(look)s)
    UNION ALL
    (SELECT 'failed', task.id, NULL
     FROM {schema.}tasks AS task
     WHERE task.state IN ('failed', 'cancelled', 'dead_letter')
       AND (task.state, task.id) > ('failed', '00000000-0000-0000-0000-000000000000')
       AND (task.state, task.id) < ('failed', 'ffffffff-ffff-ffff-ffff-ffffffffffff')
     ORDER BY task.state DESC, task.id DESC
     LIMIT %(look)s)
    UNION ALL
    (SELECT 'running', task.id, NULL
     FROM {schema.}tasks AS task
     WHERE task.state = 'running'
     ORDER BY task.locked_until DESC
     LIMIT %(look_at_others)s)
    UNION ALL
    (SELECT 'newest', task.id, NULL FROM {schema.}tasks AS task ORDER BY task.id DESC LIMIT %(look_at_others)s)
),
found AS MATERIALIZED (
    SELECT DISTINCT ON (task.id) task.id, task.name, task.state, task.error, task.started_at, task.created_at,
           task.completed_at, CASE WHEN jsonb_typeof(task.history) = 'array' THEN task.history ELSE '[]' END AS history
    FROM sampled
    JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[sampled.id])
    WHERE {include owned}
      AND (%(name)s::text IS NULL OR task.name = %(name)s::text)
      AND (%(queue)s::text IS NULL OR task.queue = %(queue)s::text)
    ORDER BY task.id
),
-- The row has the last error whole; the history has the ends of the earlier ones.
every_attempt AS (
    SELECT id, name, state, true AS is_last, error,
           CASE state WHEN 'dead_letter' THEN completed_at
                      ELSE COALESCE((history #>> '{-1,ended_at}')::timestamptz, started_at, created_at) END AS at
    FROM found
    WHERE state IN ('failed', 'dead_letter')
    UNION ALL
    SELECT id, name, state, false, entry ->> 'error', (entry ->> 'ended_at')::timestamptz
    FROM found
    CROSS JOIN LATERAL jsonb_array_elements(history) WITH ORDINALITY AS past (entry, place)
    WHERE entry ->> 'outcome' NOT IN ('replayed', 'cancelled')
      AND NOT (state IN ('failed', 'dead_letter') AND place = jsonb_array_length(history))
),
-- Each fingerprint takes about 20 µs.
latest AS MATERIALIZED (
    SELECT * FROM every_attempt
    WHERE at < %(until)s::timestamptz
    ORDER BY at DESC, id DESC
    LIMIT %(most_attempts)s
),
attempt AS MATERIALIZED (
    SELECT *, {schema.}tasklib_fingerprint(name, error) AS fingerprint, at >= %(since)s::timestamptz AS is_within
    FROM latest
)
