-- Insert tasks that carry an idempotency key; a key already taken gives back the task that has it. The update changes
-- nothing: it makes the row come back, and waits for a rival's commit, so that a race has one winner.
INSERT INTO {schema.}tasks (
    id, name, queue, kwargs, scheduled_at, max_retries, timeout_seconds, priority, tags, required_capabilities,
    trace_context, submitted_by, idempotency_key, idempotency_expires_at)
SELECT id, name, queue, kwargs,
       GREATEST(now(), scheduled_at, now() + make_interval(secs => delay_seconds)),
       max_retries, timeout_seconds, priority, tags, required_capabilities, trace_context, submitted_by,
       idempotency_key, now() + make_interval(secs => idempotency_window)
FROM jsonb_to_recordset(CAST(CAST(%(tasks)s AS text) AS jsonb)) AS task (
    id uuid, name text, queue text, kwargs jsonb, scheduled_at timestamptz, delay_seconds float8, max_retries int,
    timeout_seconds int, priority int, tags jsonb, required_capabilities text[], trace_context jsonb,
    submitted_by text, idempotency_key text, idempotency_window float8)
-- One order for all, so that two batches with the same keys can't wait for each other.
ORDER BY name, idempotency_key
ON CONFLICT (name, idempotency_key) WHERE idempotency_key IS NOT NULL
DO UPDATE SET idempotency_key = EXCLUDED.idempotency_key
RETURNING id::text, name, idempotency_key, submitted_by
