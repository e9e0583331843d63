task.id::text, task.name, task.kwargs::text, task.lease_token, task.retry_count, task.max_retries, task.timeout_seconds,
    task.crash_count, task.priority, task.queue, task.required_capabilities::text,
    -- What a run of a schedule knows of it travels with the trace: plain tasks have no column more for it.
    CASE WHEN task.schedule IS NULL THEN task.trace_context
         ELSE COALESCE(task.trace_context, '{}') || jsonb_build_object(
             'tasklib_schedule', task.schedule, 'tasklib_slot', task.slot) END::text,
    ({due})::text
