-- Of attempts that a write left out: which are still this worker's, so that another transaction must have locked them?
SELECT task.id::text
FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) AS given (id, token)
JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[given.id])
WHERE {still_running}
  AND task.lease_token = given.token
  AND task.worker_id = %(worker)s
  AND (NOT %(unexpired)s::bool OR task.locked_until > clock_timestamp())
  AND NOT (%(releasing)s::bool AND {include begun} AND task.at_most_once IS TRUE)
