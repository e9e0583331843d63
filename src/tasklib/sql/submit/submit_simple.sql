-- Insert one simple task. The columns that are left out have what it says as their default, or null: each column that is
-- written costs the server a conversion.
INSERT INTO {schema.}tasks (
    id, name, queue, kwargs, max_retries, timeout_seconds, priority)
VALUES (
    CAST(CAST(%(id)s AS text) AS uuid), CAST(%(name)s AS text), CAST(%(queue)s AS text),
    CAST(CAST(%(kwargs)s AS text) AS jsonb),
    CAST(CAST(%(max_retries)s AS text) AS int), CAST(CAST(%(timeout_seconds)s AS text) AS int),
    CAST(CAST(%(priority)s AS text) AS int))
-- The id was made by the client, so a submission whose answer was lost can be sent again.
ON CONFLICT (id) DO NOTHING
