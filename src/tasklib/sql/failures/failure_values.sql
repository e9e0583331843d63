-- For whom: the most frequent values of each tag and each argument, among the given tasks of each cause. Values inside
-- objects and lists are left out.
WITH chosen AS (
    SELECT DISTINCT fingerprint, id
    FROM unnest(%(fingerprints)s::text[], %(ids)s::text[]::uuid[]) AS given (fingerprint, id)
),
counted AS (
    SELECT chosen.fingerprint, field.kind, left(field.key, 200) AS key, left(field.value, 200) AS value,
           count(*) AS tasks
    FROM chosen
    JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[chosen.id])
    CROSS JOIN LATERAL (
        SELECT 'tag' AS kind, key, task.tags ->> key AS value, part
        FROM jsonb_each(task.tags) AS pair (key, part)
        UNION ALL
        SELECT 'argument', key, task.kwargs ->> key, part
        FROM jsonb_each(task.kwargs) AS pair (key, part)
    ) AS field
    WHERE jsonb_typeof(part) NOT IN ('object', 'array', 'null')
    GROUP BY 1, 2, 3, 4
),
ranked AS (
    SELECT *, count(*) OVER field AS "values", sum(tasks) OVER field AS all_tasks,
           row_number() OVER (PARTITION BY fingerprint, kind, key ORDER BY tasks DESC, value) AS place
    FROM counted
    WINDOW field AS (PARTITION BY fingerprint, kind, key)
)
SELECT fingerprint, kind, key, value, tasks, "values", all_tasks::bigint
FROM ranked
WHERE place <= %(most_values)s
ORDER BY fingerprint, kind DESC, key, place
