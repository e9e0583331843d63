id, name, queue, kwargs, GREATEST(now(), scheduled_at, now() + make_interval(secs => delay_seconds)), max_retries,
           timeout_seconds, priority, tags, required_capabilities, trace_context, submitted_by, COALESCE(lane, ''),
           payload_version, key_id
