-- Flows with unfinished tasks whose cancel was requested, and which the client that requested it left behind.
WITH wanted AS (
    SELECT id FROM {schema.}flows WHERE cancel_requested_at IS NOT NULL AND finished_at IS NULL
)
SELECT wanted.id::text
FROM wanted
WHERE EXISTS (SELECT
              FROM {include of_flow} AS member
              JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[member.id])
              WHERE {include to_cancel})
LIMIT %(limit)s
