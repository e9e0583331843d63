state = CASE WHEN state = 'running' THEN 'running' ELSE 'cancelled' END,
    completed_at = (SELECT CASE WHEN state = 'running' THEN NULL ELSE now() END),
    next_retry_at = CASE WHEN state = 'running' THEN next_retry_at END,
    cancel_requested_at = (SELECT COALESCE(cancel_requested_at, now()))
