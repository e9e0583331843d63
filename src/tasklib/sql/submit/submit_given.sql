-- Insert tasks without idempotency keys, with ids made by the caller, and read which of these ids existed before:
-- from a repeated submission, or another task.
WITH given AS (
    SELECT *
    FROM jsonb_to_recordset(CAST(CAST(%(tasks)s AS text) AS jsonb)) AS task (
        id uuid, name text, queue text, kwargs jsonb, scheduled_at timestamptz, delay_seconds float8, max_retries int,
        timeout_seconds int, priority int, tags jsonb, required_capabilities text[], trace_context jsonb,
        submitted_by text, lane text)
), inserted AS (
    INSERT INTO {schema.}tasks (
        id, name, queue, kwargs, scheduled_at, max_retries, timeout_seconds, priority, tags, required_capabilities,
        trace_context, submitted_by, lane)
    SELECT id, name, queue, kwargs,
           GREATEST(now(), scheduled_at, now() + make_interval(secs => delay_seconds)),
           max_retries, timeout_seconds, priority, tags, required_capabilities, trace_context, submitted_by,
           COALESCE(lane, '')
    FROM given
    ON CONFLICT (id) DO NOTHING
)
-- This sees the table as it was before the insert.
SELECT known.id::text,
       known.submitted_by IS NOT DISTINCT FROM given.submitted_by
       AND (known.name, known.queue, known.kwargs, known.priority, known.tags, known.required_capabilities)
           = (given.name, given.queue, given.kwargs, given.priority, given.tags, given.required_capabilities)
FROM given
JOIN {schema.}tasks AS known USING (id)
