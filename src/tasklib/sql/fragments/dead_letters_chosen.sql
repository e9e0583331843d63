task.state = 'dead_letter'
      AND (%(ids)s::text[] IS NULL OR task.id = ANY (%(ids)s::text[]::uuid[]))
      AND (%(name)s::text IS NULL OR task.name = %(name)s::text)
      AND (%(queue)s::text IS NULL OR task.queue = %(queue)s::text)
      AND (%(error)s::text IS NULL OR strpos(lower(task.error), lower(%(error)s::text)) > 0
                                      AND strpos(lower({include shown_error}), lower(%(error)s::text)) > 0)
      AND (%(since)s::timestamptz IS NULL OR task.completed_at >= %(since)s::timestamptz)
      AND (%(until)s::timestamptz IS NULL OR task.completed_at < %(until)s::timestamptz)
      AND {include owned}
      AND (%(fingerprint)s::text IS NULL
           OR starts_with({schema.}tasklib_fingerprint(task.name, task.error), %(fingerprint)s::text))
