-- Put on record, before their functions are called, that these attempts begin. Only of tasks for which it matters: those
-- that run at most once, and those that have crashed before. Not under a lease that has run out: that task will soon be
-- given to another worker as one that has not begun.
UPDATE {schema.}tasks AS task
SET begun_token = task.lease_token,
    at_most_once = begins.at_most_once
FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(at_most_once)s::bool[]) AS begins (id, token, at_most_once)
WHERE task.id = ANY (ARRAY[begins.id])
  AND {still_running}
  AND task.lease_token = begins.token
  AND task.worker_id = %(worker)s
  AND task.locked_until > now()
RETURNING task.id::text
