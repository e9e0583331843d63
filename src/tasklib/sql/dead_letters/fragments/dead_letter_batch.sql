-- The next batch, oldest first, after the end of the previous one. Rows that another transaction has locked are left
-- out, so this never waits and can't deadlock.
batch AS (
    SELECT task.id, task.completed_at
    FROM {schema.}tasks AS task
    WHERE {include dead_letters_chosen}
      AND {include purgeable}
      AND (%(after_time)s::timestamptz IS NULL
           OR (task.completed_at, task.id) > (%(after_time)s::timestamptz, %(after_id)s::text::uuid))
    ORDER BY task.completed_at, task.id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
