-- One page of dead letters with the same cause, the latest first, and where looking ended before it was full: each one
-- looked at costs a fingerprint, so no more than `look` are.
WITH looked AS (
    SELECT * FROM {schema.}tasks AS task
    WHERE task.state = 'dead_letter'
      AND (%(after_time)s::timestamptz IS NULL
           OR (task.completed_at, task.id) < (%(after_time)s::timestamptz, %(after_id)s::text::uuid))
    ORDER BY task.completed_at DESC, task.id DESC
    LIMIT %(look)s
),
found AS (
    SELECT {include search_columns}
    FROM looked AS task
    WHERE {include dead_letters_chosen}
    ORDER BY task.completed_at DESC, task.id DESC
    LIMIT %(limit)s
),
ended AS (
    SELECT task.completed_at, task.id
    FROM {schema.}tasks AS task
    WHERE task.state = 'dead_letter'
      AND (%(after_time)s::timestamptz IS NULL
           OR (task.completed_at, task.id) < (%(after_time)s::timestamptz, %(after_id)s::text::uuid))
      AND (SELECT count(*) FROM found) < %(limit)s
    ORDER BY task.completed_at DESC, task.id DESC
    OFFSET %(look)s - 1
    LIMIT 1
)
SELECT ended.completed_at, ended.id::text, found.*
FROM (SELECT) AS one
LEFT JOIN ended ON true
LEFT JOIN found ON true
ORDER BY found.completed_at DESC, found.id DESC
