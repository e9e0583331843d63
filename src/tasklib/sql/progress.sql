-- Store the newest progress of running attempts, but for rows that another transaction has locked.
WITH report AS (
    SELECT task.id, given.progress
    FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(reports)s::text[]) AS given (id, token, progress)
    JOIN {schema.}tasks AS task ON task.id = given.id
    WHERE {still_running}
      AND task.lease_token = given.token
      AND task.worker_id = %(worker)s
    ORDER BY task.id
    FOR NO KEY UPDATE OF task SKIP LOCKED
)
UPDATE {schema.}tasks AS task
SET progress = report.progress::jsonb
FROM report
WHERE task.id = report.id
RETURNING task.id::text
