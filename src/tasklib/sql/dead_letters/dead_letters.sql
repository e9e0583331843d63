-- One page of dead letters, the latest first. Read from their own small index, however many tasks there are.
SELECT {task_columns_within}
FROM {schema.}tasks AS task
WHERE {include dead_letters_chosen}
  AND (%(after_time)s::timestamptz IS NULL
       OR (task.completed_at, task.id) < (%(after_time)s::timestamptz, %(after_id)s::text::uuid))
ORDER BY task.completed_at DESC, task.id DESC
LIMIT %(limit)s
