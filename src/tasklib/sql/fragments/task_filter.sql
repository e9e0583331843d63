(%(states)s::text[] IS NULL OR task.state = ANY (%(states)s::text[]))
      AND (%(name)s::text IS NULL OR task.name = %(name)s::text)
      AND (%(queue)s::text IS NULL OR task.queue = %(queue)s::text)
      AND (%(tags)s::text IS NULL OR task.tags @> %(tags)s::text::jsonb)
      AND (%(created_after)s::timestamptz IS NULL OR task.created_at >= %(created_after)s::timestamptz)
      AND (%(created_before)s::timestamptz IS NULL OR task.created_at < %(created_before)s::timestamptz)
      AND {include owned}
      AND (%(ids)s::text[] IS NULL OR task.id = ANY (%(ids)s::text[]::uuid[]))
      -- Only what runs has a worker, and that has an index of its own.
      AND (%(worker)s::text IS NULL OR task.id = ANY (ARRAY(
          SELECT running.id FROM {schema.}tasks AS running
          WHERE running.state = 'running' AND running.worker_id = %(worker)s::text)))
