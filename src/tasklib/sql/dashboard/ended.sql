-- How these attempts ended, as far as the rows say: by the row if it is the last attempt, else by the history. Of an
-- attempt that was released neither says anything.
SELECT attempt.id, attempt.token, COALESCE(past.state, last.state), COALESCE(past.at, last.at)
FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) AS attempt (id, token)
JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[attempt.id])
LEFT JOIN LATERAL (
    SELECT CASE entry ->> 'outcome' WHEN 'replayed' THEN 'completed' WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END
               AS state,
           COALESCE(entry ->> 'completed_at', entry ->> 'ended_at')::timestamptz AS at
    FROM jsonb_array_elements(CASE WHEN jsonb_typeof(task.history) = 'array' THEN task.history ELSE '[]' END) AS entry
    WHERE entry ->> 'token' = attempt.token::text AND entry ->> 'worker' IS NOT NULL
    LIMIT 1
) AS past ON true
LEFT JOIN LATERAL (
    SELECT task.state, task.completed_at AS at
    WHERE task.lease_token = attempt.token AND task.completed_at IS NOT NULL
) AS last ON true
WHERE NOT (task.state = 'running' AND task.lease_token = attempt.token)
