-- Dead letters by cause, the most frequent first, each with its newest task as an example. Of the latest `look` dead
-- letters: each costs a fingerprint. Null: of all.
WITH looked AS MATERIALIZED (
    SELECT {schema.}tasklib_fingerprint(task.name, task.error) AS fingerprint, task.name, task.completed_at, task.id
    FROM {schema.}tasks AS task
    WHERE {include dead_letters_chosen}
    ORDER BY task.completed_at DESC, task.id DESC
    LIMIT %(look)s
)
SELECT fingerprint, name, tasks, first_seen, last_seen, sample,
       (SELECT {include last_line} FROM {schema.}tasks WHERE id = sample::uuid),
       (SELECT count(*) FROM looked)
FROM (
    SELECT fingerprint, name, count(*) AS tasks,
           min(completed_at) AS first_seen, max(completed_at) AS last_seen, max(id::text) AS sample
    FROM looked
    GROUP BY 1, 2
    ORDER BY tasks DESC, last_seen DESC
    LIMIT %(limit)s
) AS causes
ORDER BY tasks DESC, last_seen DESC
