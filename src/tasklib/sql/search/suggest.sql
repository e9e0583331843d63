-- Values that the newest tasks have in one field, and how many of them have each: suggestions while a search is typed.
-- At most `look` tasks are read. Only the branch of the field that is asked for runs.
WITH sample AS MATERIALIZED (
    SELECT task.name, task.queue, task.worker_id, task.schedule, task.node, task.tags, task.kwargs,
           CASE WHEN %(field)s::text = 'cause' THEN task.error END AS error
    FROM {schema.}tasks AS task
    WHERE {include owned}
    ORDER BY {include by_owner} DESC, task.id DESC
    LIMIT %(look)s
),
said AS (
    SELECT CASE %(field)s::text
               WHEN 'name' THEN name WHEN 'queue' THEN queue WHEN 'worker' THEN worker_id
               WHEN 'schedule' THEN schedule WHEN 'node' THEN node
               WHEN 'tag' THEN tags ->> %(key)s::text
               WHEN 'args' THEN kwargs #>> string_to_array(%(key)s::text, '.')
               WHEN 'cause' THEN CASE WHEN error IS NOT NULL THEN left({schema.}tasklib_fingerprint(name, error), 12) END END AS value
    FROM sample
    WHERE %(field)s::text NOT IN ('tag_key', 'args_key')
    UNION ALL
    SELECT key FROM sample, jsonb_object_keys(CASE jsonb_typeof(tags) WHEN 'object' THEN tags ELSE '{}' END) AS key
    WHERE %(field)s::text = 'tag_key'
    UNION ALL
    SELECT key FROM sample, jsonb_object_keys(CASE jsonb_typeof(kwargs) WHEN 'object' THEN kwargs ELSE '{}' END) AS key
    WHERE %(field)s::text = 'args_key'
)
SELECT value, count(*)
FROM said
WHERE value ILIKE %(pattern)s::text AND length(value) <= 200
GROUP BY value
-- Those that begin with what was typed first.
ORDER BY value ILIKE %(beginning)s::text DESC, count(*) DESC, value
LIMIT %(limit)s
