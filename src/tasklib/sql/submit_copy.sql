COPY {schema.}tasks (
    id, name, queue, kwargs, max_retries, timeout_seconds, priority, tags, required_capabilities, trace_context)
FROM STDIN
