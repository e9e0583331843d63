task.id::text, task.name, task.kwargs::text, task.lease_token, task.retry_count, task.max_retries, task.timeout_seconds,
    task.crash_count, task.priority, task.queue, task.required_capabilities::text, task.trace_context::text, ({due})::text
