-- What failed lately: the latest dead letters, and what waits for a retry among the latest tasks. Both by their index.
WITH dead AS (
    SELECT id, name, queue, state, error, completed_at AS at
    FROM {schema.}tasks
    WHERE state = 'dead_letter'
    ORDER BY completed_at DESC, id DESC
    LIMIT %(limit)s
),
latest AS MATERIALIZED (
    SELECT id, name, queue, state, error, started_at AS at FROM {schema.}tasks ORDER BY id DESC LIMIT %(sample)s
)
SELECT id, name, queue, state, left({include last_line}, 500), at,
       {schema.}tasklib_fingerprint(name, {include last_line})
FROM (SELECT * FROM dead UNION ALL SELECT * FROM latest WHERE state = 'failed') AS failure
ORDER BY at DESC NULLS LAST, id DESC
LIMIT %(limit)s
