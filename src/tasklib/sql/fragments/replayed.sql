state = 'pending',
    scheduled_at = now(),
    retry_count = 0,
    crash_count = 0,
    result = NULL,
    error = NULL,
    next_retry_at = NULL,
    started_at = NULL,
    completed_at = NULL,
    cancel_requested_at = NULL,
    progress = NULL,
    history = jsonb_path_query_array(COALESCE(history, '[]'), '$[last - 48 to last] ? (@ != null)') || jsonb_build_object(
        'outcome', 'replayed', 'was', state, 'token', lease_token, 'ended_at', now(), 'error', right(error, 500))
