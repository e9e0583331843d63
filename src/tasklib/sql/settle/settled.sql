-- After a settlement whose answer was lost: which of these attempts are over, as far as the table knows?
SELECT task.id::text
FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) AS attempt (id, token)
JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[attempt.id])
WHERE task.lease_token = attempt.token AND task.state <> 'running'
