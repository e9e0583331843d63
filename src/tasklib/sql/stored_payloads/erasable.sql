-- Finished tasks that match and are not erased yet, in the order of their ids.
SELECT task.id::text
FROM {schema.}tasks AS task
WHERE {include task_filter}
  AND task.id > %(after)s::text::uuid
  AND task.state IN ('completed', 'cancelled', 'dead_letter')
  AND NOT task.kwargs ? '$erased'
ORDER BY task.id
LIMIT %(limit)s
