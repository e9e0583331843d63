-- Attempts that failed, out of the histories of the latest tasks and dead letters.
WITH latest AS MATERIALIZED (
    (SELECT id, name, queue, history FROM {schema.}tasks ORDER BY id DESC LIMIT %(sample)s)
    UNION
    (SELECT id, name, queue, history FROM {schema.}tasks WHERE state = 'dead_letter'
     ORDER BY completed_at DESC, id DESC LIMIT %(sample)s / 10)
)
SELECT id, name, queue, entry ->> 'worker', (entry ->> 'started_at')::timestamptz, (entry ->> 'ended_at')::timestamptz
FROM latest
CROSS JOIN LATERAL jsonb_array_elements(history) AS attempt (entry)
WHERE jsonb_typeof(history) = 'array'
  AND entry ->> 'worker' IS NOT NULL
  AND entry ->> 'started_at' IS NOT NULL
  AND (entry ->> 'ended_at')::timestamptz > now() - make_interval(secs => %(seconds)s)
ORDER BY 6 DESC
LIMIT %(limit)s
