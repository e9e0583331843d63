id, name, queue, kwargs, scheduled_at, max_retries, timeout_seconds, priority, tags, required_capabilities,
        trace_context, submitted_by, lane, payload_version, key_id
