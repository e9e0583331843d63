-- Store the newest progress of running attempts.
WITH report AS (
    SELECT task.id, given.progress
    FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(reports)s::text[]) AS given (id, token, progress)
    JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[given.id])
    WHERE {include lock_held}
)
UPDATE {schema.}tasks AS task
SET progress = report.progress::jsonb
FROM report
WHERE task.id = ANY (ARRAY[report.id])
RETURNING task.id::text
