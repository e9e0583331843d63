-- Store the newest progress of running attempts.
UPDATE {schema.}tasks AS task
SET progress = report.progress::jsonb
FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(reports)s::text[]) AS report (id, token, progress)
WHERE task.id = report.id
  AND {still_running}
  AND task.lease_token = report.token
  AND task.worker_id = %(worker)s
RETURNING task.id::text
