task.id::text, task.name, task.kwargs::text, task.lease_token, task.retry_count, task.max_retries, task.timeout_seconds,
    task.crash_count, task.priority, task.queue, task.required_capabilities::text,
    -- What a run of a schedule knows of it, a task of its flow, or one of the version of its arguments, travels with the
    -- trace: plain tasks have no column more for it.
    CASE WHEN task.schedule IS NULL AND task.flow IS NULL AND task.reports_to IS NULL AND task.payload_version IS NULL
         THEN task.trace_context::text
         -- Most tasks of flows: text takes less time than building jsonb.
         WHEN task.schedule IS NULL AND task.trace_context IS NULL AND task.payload_version IS NULL THEN
             '{' || concat_ws(', ', '"tasklib_flow": "' || task.flow::text || '"', '"tasklib_node": ' || to_json(task.node)::text,
                              '"tasklib_reports_to": ["' || NULLIF(array_to_string(task.reports_to, '", "'), '') || '"]',
                              '"tasklib_results": ' || NULLIF(task.args, '{}')::text) || '}'
         ELSE (COALESCE(task.trace_context, '{}') || jsonb_strip_nulls(jsonb_build_object(
             'tasklib_schedule', task.schedule, 'tasklib_slot', task.slot, 'tasklib_flow', task.flow,
             'tasklib_node', task.node, 'tasklib_reports_to', task.reports_to,
             'tasklib_results', NULLIF(task.args, '{}'),
             'tasklib_version', task.payload_version)))::text END,
    ({due})::text
