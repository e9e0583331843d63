-- All parameters are text: every driver sends that as it is, and the statement is the same whatever the values are.
INSERT INTO {schema.}tasks (
    {include submitted_columns}, idempotency_key, idempotency_expires_at)
VALUES (
    CAST(CAST(%(id)s AS text) AS uuid), CAST(%(name)s AS text), CAST(%(queue)s AS text),
    CAST(CAST(%(kwargs)s AS text) AS jsonb),
    -- A moment that has passed means now: a task must not be born with a priority that others have waited for.
    GREATEST(now(), CAST(CAST(%(scheduled_at)s AS text) AS timestamptz),
             now() + make_interval(secs => CAST(CAST(%(delay_seconds)s AS text) AS float8))),
    CAST(CAST(%(max_retries)s AS text) AS int), CAST(CAST(%(timeout_seconds)s AS text) AS int),
    CAST(CAST(%(priority)s AS text) AS int), CAST(CAST(%(tags)s AS text) AS jsonb),
    CAST(CAST(%(required_capabilities)s AS text) AS text[]), CAST(CAST(%(trace_context)s AS text) AS jsonb),
    CAST(%(submitted_by)s AS text), CAST(%(lane)s AS text),
    NULL, NULL, -- tasks with a version, and sealed ones, take another statement
    CAST(%(idempotency_key)s AS text),
    now() + make_interval(secs => CAST(CAST(%(idempotency_window)s AS text) AS float8)))
