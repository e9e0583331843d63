-- The latest failed attempts before `until`, out of a bounded number of rows, each found by an index: dead letters, tasks
-- that wait for a retry, tasks that run again, and the newest tasks, which may have completed after a failure. The owner's
-- are chosen from these. Each row is read where its index finds it: looking 5,000 up by their ids takes longer than all else.
found AS MATERIALIZED (
    SELECT task.id, task.name, task.state, COALESCE({include last_line}, '') AS line, task.started_at, task.created_at,
           task.completed_at, CASE WHEN jsonb_typeof(task.history) = 'array' THEN NULLIF(task.history, '[]') END AS history
    FROM (
        (SELECT {include failure_columns}
         FROM {schema.}tasks
         WHERE state = 'dead_letter' AND completed_at < %(until)s::timestamptz
         ORDER BY completed_at DESC, id DESC
         LIMIT %(look)s)
        UNION ALL
        (SELECT {include failure_columns}
         FROM {schema.}tasks
         WHERE {include waits_for_retry}
         ORDER BY state DESC, id DESC
         LIMIT %(look)s)
        UNION ALL
        (SELECT {include failure_columns}
         FROM {schema.}tasks
         WHERE state = 'running'
         ORDER BY locked_until DESC
         LIMIT %(look_at_others)s)
        UNION ALL
        SELECT *
        FROM (SELECT {include failure_columns} FROM {schema.}tasks ORDER BY id DESC LIMIT %(look_at_others)s) AS newest
        WHERE state NOT IN ('dead_letter', 'failed', 'running')
    ) AS task
    WHERE {include owned}
      AND (%(name)s::text IS NULL OR task.name = %(name)s::text)
      AND (%(queue)s::text IS NULL OR task.queue = %(queue)s::text)
),
-- The row has the last error whole; the history has the ends of the earlier ones.
every_attempt AS (
    SELECT id, name, state, true AS is_last, line,
           CASE state WHEN 'dead_letter' THEN completed_at
                      ELSE COALESCE((history #>> '{-1,ended_at}')::timestamptz, started_at, created_at) END AS at
    FROM found
    WHERE state IN ('failed', 'dead_letter')
    UNION ALL
    SELECT id, name, state, false, COALESCE({include last_line}, ''), (entry ->> 'ended_at')::timestamptz
    FROM found
    CROSS JOIN LATERAL jsonb_array_elements(history) WITH ORDINALITY AS past (entry, place)
    CROSS JOIN LATERAL (SELECT entry ->> 'error' AS error) AS text
    WHERE history IS NOT NULL AND entry ->> 'outcome' NOT IN ('replayed', 'cancelled')
      AND NOT (state IN ('failed', 'dead_letter') AND place = jsonb_array_length(history))
),
-- Numbered from the latest.
latest AS MATERIALIZED (
    SELECT *, row_number() OVER (ORDER BY at DESC, id DESC)::int AS place
    FROM every_attempt
    WHERE at < %(until)s::timestamptz
    ORDER BY at DESC, id DESC
    LIMIT %(most_attempts)s
),
-- Each fingerprint takes about 10 µs, and many attempts end with the same line. Causes are grouped by a number: text takes
-- longer.
cause_of_line AS MATERIALIZED (
    SELECT *, dense_rank() OVER (ORDER BY fingerprint)::int AS cause
    FROM (
        SELECT name, line, {schema.}tasklib_fingerprint(name, line) AS fingerprint
        FROM (SELECT DISTINCT name, line FROM latest) AS text
    ) AS known
    WHERE %(fingerprint)s::text IS NULL OR starts_with(fingerprint, %(fingerprint)s::text)
),
attempt AS MATERIALIZED (
    SELECT latest.*, cause, at >= %(since)s::timestamptz AS is_within
    FROM latest
    JOIN cause_of_line USING (name, line)
)
