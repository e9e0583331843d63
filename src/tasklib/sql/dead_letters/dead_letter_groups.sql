-- Dead letters by cause, the most frequent first, each with its newest task as an example. Of the latest `look` dead
-- letters; null: of all. Each fingerprint takes about 10 µs, and many errors end with the same line.
WITH looked AS MATERIALIZED (
    SELECT task.name, COALESCE({include last_line}, '') AS line, task.completed_at, task.id
    FROM {schema.}tasks AS task
    WHERE {include dead_letters_chosen}
    ORDER BY task.completed_at DESC, task.id DESC
    LIMIT %(look)s
),
of_line AS (
    SELECT name, line, count(*) AS tasks, min(completed_at) AS first_seen, max(completed_at) AS last_seen,
           max(id::text) AS sample
    FROM looked
    GROUP BY name, line
)
SELECT fingerprint, name, tasks, first_seen, last_seen, sample,
       (SELECT {include last_line} FROM {schema.}tasks WHERE id = sample::uuid),
       (SELECT count(*) FROM looked)
FROM (
    SELECT {schema.}tasklib_fingerprint(name, line) AS fingerprint, name, sum(tasks)::bigint AS tasks,
           min(first_seen) AS first_seen, max(last_seen) AS last_seen, max(sample) AS sample
    FROM of_line
    GROUP BY 1, 2
    ORDER BY tasks DESC, last_seen DESC
    LIMIT %(limit)s
) AS causes
ORDER BY tasks DESC, last_seen DESC
