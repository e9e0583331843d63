COPY {schema.}tasks (
    id, name, queue, kwargs, max_retries, timeout_seconds, priority)
FROM STDIN
