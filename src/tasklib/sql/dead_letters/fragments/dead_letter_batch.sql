-- The next batch, oldest first, behind the place where the one before ended. What somebody else has locked is left
-- out, so this never waits and can't deadlock.
batch AS (
    SELECT task.id, task.completed_at
    FROM {schema.}tasks AS task
    WHERE {include dead_letters_chosen}
      AND (%(after_time)s::timestamptz IS NULL
           OR (task.completed_at, task.id) > (%(after_time)s::timestamptz, %(after_id)s::text::uuid))
    ORDER BY task.completed_at, task.id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
