COPY {schema.}tasks (
    id, name, queue, kwargs, max_retries, timeout_seconds, priority, tags, required_capabilities, trace_context,
    submitted_by, lane)
FROM STDIN
