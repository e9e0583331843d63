-- How many tasks each key seals, and how many of them are still to run.
SELECT key_id, count(*), count(*) FILTER (WHERE state IN ('pending', 'failed', 'running')), max(created_at)
FROM {schema.}tasks
WHERE key_id IS NOT NULL
GROUP BY key_id
ORDER BY key_id
