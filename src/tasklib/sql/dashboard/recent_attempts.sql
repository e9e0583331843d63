-- Attempts that ended lately, out of the rows and histories of the latest tasks and dead letters.
WITH latest AS MATERIALIZED (
    (SELECT id, name, state, lease_token, worker_id, started_at, completed_at, history
     FROM {schema.}tasks ORDER BY id DESC LIMIT %(sample)s)
    UNION ALL
    (SELECT id, name, state, lease_token, worker_id, started_at, completed_at, history
     FROM {schema.}tasks WHERE state = 'dead_letter' ORDER BY completed_at DESC, id DESC LIMIT %(sample)s / 10)
),
attempt AS (
    SELECT id, lease_token AS token, name, worker_id AS worker, started_at, completed_at AS ended_at, state
    FROM latest
    WHERE state = 'completed' AND worker_id IS NOT NULL AND started_at IS NOT NULL
    UNION
    SELECT id, CASE WHEN jsonb_typeof(entry -> 'token') = 'number' THEN (entry ->> 'token')::bigint ELSE 0 END, name, entry ->> 'worker', (entry ->> 'started_at')::timestamptz,
           (entry ->> CASE WHEN is_replay THEN 'completed_at' ELSE 'ended_at' END)::timestamptz,
           CASE WHEN is_replay THEN 'completed' WHEN entry ->> 'outcome' = 'cancelled' THEN 'cancelled' ELSE 'failed' END
    FROM latest
    CROSS JOIN LATERAL jsonb_array_elements(CASE WHEN jsonb_typeof(history) = 'array' THEN history ELSE '[]' END) AS entry
    CROSS JOIN LATERAL (SELECT entry ->> 'outcome' = 'replayed' AS is_replay) AS kind
    WHERE entry ->> 'worker' IS NOT NULL AND entry ->> 'started_at' IS NOT NULL
)
SELECT id, token, name, worker, started_at, ended_at, state
FROM attempt
WHERE ended_at > now() - make_interval(secs => %(seconds)s)
ORDER BY ended_at DESC
LIMIT %(limit)s
