-- What a search asks of a task. Null asks nothing, and is gone from the plan.
      (%(states)s::text[] IS NULL OR task.state = ANY (%(states)s::text[]))
      AND (%(names)s::text[] IS NULL OR task.name LIKE ANY (%(names)s::text[]))
      AND (%(not_names)s::text[] IS NULL OR NOT task.name LIKE ANY (%(not_names)s::text[]))
      AND (%(queues)s::text[] IS NULL OR task.queue LIKE ANY (%(queues)s::text[]))
      AND (%(not_queues)s::text[] IS NULL OR NOT task.queue LIKE ANY (%(not_queues)s::text[]))
      AND (%(schedules)s::text[] IS NULL OR task.schedule LIKE ANY (%(schedules)s::text[]))
      AND (%(not_schedules)s::text[] IS NULL OR task.schedule IS NULL
           OR NOT task.schedule LIKE ANY (%(not_schedules)s::text[]))
      AND (%(flows)s::text[] IS NULL OR task.flow::text LIKE ANY (%(flows)s::text[]))
      AND (%(not_flows)s::text[] IS NULL OR task.flow IS NULL
           OR NOT task.flow::text LIKE ANY (%(not_flows)s::text[]))
      AND (%(nodes)s::text[] IS NULL OR task.node LIKE ANY (%(nodes)s::text[]))
      AND (%(not_nodes)s::text[] IS NULL OR task.node IS NULL
           OR NOT task.node LIKE ANY (%(not_nodes)s::text[]))
      AND (%(created_from)s::timestamptz IS NULL OR task.created_at >= %(created_from)s::timestamptz)
      AND (%(created_to)s::timestamptz IS NULL OR task.created_at < %(created_to)s::timestamptz)
      AND (%(due_from)s::timestamptz IS NULL OR task.state IN ('pending', 'failed')
           AND COALESCE(task.next_retry_at, task.scheduled_at) >= %(due_from)s::timestamptz)
      AND (%(due_to)s::timestamptz IS NULL OR task.state IN ('pending', 'failed')
           AND COALESCE(task.next_retry_at, task.scheduled_at) < %(due_to)s::timestamptz)
      -- The end of the last attempt, if it failed.
      AND (%(failed_from)s::timestamptz IS NULL AND %(failed_to)s::timestamptz IS NULL OR (
          SELECT at >= COALESCE(%(failed_from)s::timestamptz, at) AND at < COALESCE(%(failed_to)s::timestamptz, 'infinity')
          FROM (SELECT CASE task.state WHEN 'dead_letter' THEN task.completed_at
                                       WHEN 'failed' THEN (task.history #>> '{-1,ended_at}')::timestamptz END) AS failed (at)))
      AND (%(duration_from)s::float8 IS NULL AND %(duration_to)s::float8 IS NULL OR (
          SELECT took >= COALESCE(%(duration_from)s::float8, took) AND took < COALESCE(%(duration_to)s::float8, 'infinity')
          FROM (SELECT extract(epoch FROM CASE WHEN task.state = 'running' THEN now() ELSE task.completed_at END
                                          - task.started_at)::float8) AS ran (took)))
      AND (%(ids)s::text[] IS NULL OR task.id::text LIKE ANY (%(ids)s::text[]))
      AND (%(not_ids)s::text[] IS NULL OR NOT task.id::text LIKE ANY (%(not_ids)s::text[]))
      -- From the lowest to the highest of each pair.
      AND (%(lowest)s::int[] IS NULL OR EXISTS (
          SELECT FROM unnest(%(lowest)s::int[], %(highest)s::int[]) AS wanted (lowest, highest)
          WHERE task.priority BETWEEN wanted.lowest AND wanted.highest))
      AND (%(not_lowest)s::int[] IS NULL OR NOT EXISTS (
          SELECT FROM unnest(%(not_lowest)s::int[], %(not_highest)s::int[]) AS unwanted (lowest, highest)
          WHERE task.priority BETWEEN unwanted.lowest AND unwanted.highest))
      -- Every key, with one of its values if it has any. As text: 42 is the number and the string.
      AND (%(tags)s::text IS NULL OR NOT EXISTS (
          SELECT FROM jsonb_to_recordset(%(tags)s::text::jsonb) AS wanted (key text, "values" text[])
          WHERE NOT (task.tags ? wanted.key
                     AND (wanted."values" IS NULL OR (task.tags ->> wanted.key) = ANY (wanted."values")) IS TRUE)))
      AND (%(not_tags)s::text IS NULL OR NOT EXISTS (
          SELECT FROM jsonb_to_recordset(%(not_tags)s::text::jsonb) AS unwanted (key text, "values" text[])
          WHERE task.tags ? unwanted.key
            AND (unwanted."values" IS NULL OR (task.tags ->> unwanted.key) = ANY (unwanted."values")) IS TRUE))
      -- The same of arguments, by path.
      AND (%(arguments)s::text IS NULL OR NOT EXISTS (
          SELECT FROM jsonb_to_recordset(%(arguments)s::text::jsonb) AS wanted (key text, "values" text[])
          WHERE NOT (task.kwargs #> string_to_array(wanted.key, '.') IS NOT NULL
                     AND (wanted."values" IS NULL
                          OR (task.kwargs #>> string_to_array(wanted.key, '.')) = ANY (wanted."values")) IS TRUE)))
      AND (%(not_arguments)s::text IS NULL OR NOT EXISTS (
          SELECT FROM jsonb_to_recordset(%(not_arguments)s::text::jsonb) AS unwanted (key text, "values" text[])
          WHERE task.kwargs #> string_to_array(unwanted.key, '.') IS NOT NULL
            AND (unwanted."values" IS NULL
                 OR (task.kwargs #>> string_to_array(unwanted.key, '.')) = ANY (unwanted."values")) IS TRUE))
      -- Every word is a piece of the name or of the id.
      AND (%(words)s::text[] IS NULL OR NOT EXISTS (
          SELECT FROM unnest(%(words)s::text[]) AS word
          WHERE NOT (task.name ILIKE word OR task.id::text LIKE lower(word))))
      AND (%(not_words)s::text[] IS NULL OR NOT EXISTS (
          SELECT FROM unnest(%(not_words)s::text[]) AS word
          WHERE task.name ILIKE word OR task.id::text LIKE lower(word)))
      -- The worker that runs or completed it, or that ran an earlier attempt.
      AND (%(workers)s::text[] IS NULL OR task.worker_id LIKE ANY (%(workers)s::text[])
           OR EXISTS (SELECT FROM jsonb_path_query(task.history, '$[*].worker') AS ran
                      WHERE (ran #>> '{}') LIKE ANY (%(workers)s::text[])))
      AND (%(not_workers)s::text[] IS NULL OR NOT (COALESCE(task.worker_id, '') LIKE ANY (%(not_workers)s::text[])
           OR EXISTS (SELECT FROM jsonb_path_query(task.history, '$[*].worker') AS ran
                      WHERE (ran #>> '{}') LIKE ANY (%(not_workers)s::text[]))))
      -- A key of a submission over HTTP has its owner in front: owner/key.
      AND (%(keys)s::text[] IS NULL OR task.idempotency_key LIKE ANY (%(keys)s::text[])
           OR task.merge_key LIKE ANY (%(keys)s::text[])
           OR substr(task.idempotency_key, length(task.submitted_by) + 2) LIKE ANY (%(keys)s::text[]))
      AND (%(not_keys)s::text[] IS NULL OR NOT (COALESCE(task.idempotency_key, '') LIKE ANY (%(not_keys)s::text[])
           OR COALESCE(task.merge_key, '') LIKE ANY (%(not_keys)s::text[])))
      -- The trace of a task without a context is its own id.
      AND (%(traces)s::text[] IS NULL OR COALESCE(NULLIF(split_part(task.trace_context ->> 'traceparent', '-', 2), ''),
                                                  replace(task.id::text, '-', '')) LIKE ANY (%(traces)s::text[]))
      AND (%(not_traces)s::text[] IS NULL
           OR NOT COALESCE(NULLIF(split_part(task.trace_context ->> 'traceparent', '-', 2), ''),
                           replace(task.id::text, '-', '')) LIKE ANY (%(not_traces)s::text[]))
      -- Last, because tracebacks are long.
      AND (%(errors)s::text[] IS NULL OR task.error ILIKE ANY (%(errors)s::text[])
                                         AND {include shown_error} ILIKE ANY (%(errors)s::text[]))
      AND (%(not_errors)s::text[] IS NULL
           OR NOT (COALESCE(task.error, '') ILIKE ANY (%(not_errors)s::text[])
                   AND COALESCE({include shown_error}, '') ILIKE ANY (%(not_errors)s::text[])))
      AND (%(causes)s::text[] IS NULL OR task.error IS NOT NULL
           AND {schema.}tasklib_fingerprint(task.name, task.error) LIKE ANY (%(causes)s::text[]))
      AND (%(not_causes)s::text[] IS NULL OR task.error IS NULL
           OR NOT {schema.}tasklib_fingerprint(task.name, task.error) LIKE ANY (%(not_causes)s::text[]))
