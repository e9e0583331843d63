-- Which of these running attempts have been asked to stop?
SELECT task.id::text
FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) AS attempt (id, token)
JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[attempt.id])
WHERE task.lease_token = attempt.token AND {still_running} AND task.cancel_requested_at IS NOT NULL
