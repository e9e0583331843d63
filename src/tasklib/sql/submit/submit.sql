-- Insert any number of tasks given as one JSON array: the same statement through every driver.
INSERT INTO {schema.}tasks (
    id, name, queue, kwargs, scheduled_at, max_retries, timeout_seconds, priority, tags, required_capabilities,
    trace_context, submitted_by, lane)
SELECT id, name, queue, kwargs,
       GREATEST(now(), scheduled_at, now() + make_interval(secs => delay_seconds)),
       max_retries, timeout_seconds, priority, tags, required_capabilities, trace_context, submitted_by,
       COALESCE(lane, '')
FROM jsonb_to_recordset(CAST(CAST(%(tasks)s AS text) AS jsonb)) AS task (
    id uuid, name text, queue text, kwargs jsonb, scheduled_at timestamptz, delay_seconds float8, max_retries int,
    timeout_seconds int, priority int, tags jsonb, required_capabilities text[], trace_context jsonb,
    submitted_by text, lane text)
-- The id was made by the client, so a submission whose answer was lost can be sent again.
ON CONFLICT (id) DO NOTHING
