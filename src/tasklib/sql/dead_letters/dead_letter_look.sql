-- What a replay or a purge would take.
SELECT task.id::text, task.completed_at
FROM {schema.}tasks AS task
WHERE {include dead_letters_chosen}
  AND {include purgeable}
ORDER BY task.completed_at, task.id
LIMIT %(limit)s
