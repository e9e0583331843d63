-- One page, newest first; ids sort by time, so the last id of a page is where the next one starts.
SELECT {task_columns_within}
FROM {schema.}tasks
WHERE (%(states)s::text[] IS NULL OR state = ANY (%(states)s::text[]))
  AND (%(name)s::text IS NULL OR name = %(name)s::text)
  AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
  AND (%(tags)s::text IS NULL OR tags @> %(tags)s::text::jsonb)
  AND (%(created_after)s::timestamptz IS NULL OR created_at >= %(created_after)s::timestamptz)
  AND (%(created_before)s::timestamptz IS NULL OR created_at < %(created_before)s::timestamptz)
  AND {include owned}
  -- Only what runs has a worker, and that has an index of its own.
  AND (%(worker)s::text IS NULL OR id = ANY (ARRAY(
      SELECT running.id FROM {schema.}tasks AS running
      WHERE running.state = 'running' AND running.worker_id = %(worker)s::text)))
  AND (%(after)s::text IS NULL OR id < %(after)s::text::uuid)
ORDER BY id DESC
LIMIT %(limit)s
