-- As they are: the worker reads all of them as text or numbers. In RETURNING, Citus allows no function that isn't IMMUTABLE.
task.id, task.name, task.kwargs, task.lease_token, task.retry_count, task.max_retries, task.timeout_seconds,
    task.crash_count, task.priority, task.queue, task.required_capabilities,
    -- What a run of a schedule knows of it, a task of its flow, or one of the version of its arguments, travels with the
    -- trace: plain tasks have no column more for it.
    CASE WHEN task.schedule IS NULL AND task.flow IS NULL AND task.reports_to IS NULL AND task.payload_version IS NULL
         THEN task.trace_context::text
         ELSE {schema.}tasklib_carried(task.trace_context, task.schedule, task.slot, task.flow, task.node,
                                       task.reports_to, task.args, task.payload_version) END,
    {due}
