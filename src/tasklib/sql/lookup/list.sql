-- One page, newest first; ids sort by time, so the last id of a page is where the next one starts.
SELECT {task_columns_within}
FROM {schema.}tasks AS task
WHERE {include task_filter}
      -- True of every waiting task: names the two partial indexes that have them, for when they are few.
      AND (NOT %(waiting)s::bool OR task.waits_for IS NOT NULL
           OR (task.state IN ('pending', 'failed') AND task.waits_for IS NULL))
      AND (%(after)s::text IS NULL OR task.id < %(after)s::text::uuid)
ORDER BY task.id DESC
LIMIT %(limit)s
