-- One page, newest first; ids sort by time, so the last id of a page is where the next one starts.
SELECT {task_columns_within}
FROM {schema.}tasks AS task
WHERE {include task_filter}
      AND (%(after)s::text IS NULL OR task.id < %(after)s::text::uuid)
ORDER BY task.id DESC
LIMIT %(limit)s
