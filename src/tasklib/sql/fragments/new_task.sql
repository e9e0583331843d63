id uuid, name text, queue text, kwargs jsonb, scheduled_at timestamptz, delay_seconds float8, max_retries int,
        timeout_seconds int, priority int, tags jsonb, required_capabilities text[], trace_context jsonb,
        submitted_by text, lane text, payload_version smallint, key_id text
