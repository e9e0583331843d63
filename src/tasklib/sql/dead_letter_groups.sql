-- Dead letters by cause, the most frequent first, each with its newest task as an example.
SELECT fingerprint, name, tasks, first_seen, last_seen, sample,
       (SELECT split_part(rtrim(error, E' \t\r\n'), E'\n', -1) FROM {schema.}tasks WHERE id = sample::uuid)
FROM (
    SELECT {schema.}tasklib_fingerprint(task.name, task.error) AS fingerprint, task.name, count(*) AS tasks,
           min(task.completed_at) AS first_seen, max(task.completed_at) AS last_seen, max(task.id::text) AS sample
    FROM {schema.}tasks AS task
    WHERE {include dead_letters_chosen}
    GROUP BY 1, 2
    ORDER BY tasks DESC, last_seen DESC
    LIMIT %(limit)s
) AS causes
ORDER BY tasks DESC, last_seen DESC
