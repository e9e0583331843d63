state = 'pending',
    scheduled_at = now(),
    retry_count = 0,
    crash_count = 0,
    result = NULL,
    error = NULL,
    next_retry_at = NULL,
    started_at = NULL,
    completed_at = NULL,
    worker_id = NULL,
    cancel_requested_at = NULL,
    progress = NULL,
    merge_key = NULL,
    merge_while = NULL,
    awaited_signals = NULL,
    history = (SELECT jsonb_path_query_array(COALESCE(history, '[]'), '$[last - 48 to last] ? (@ != null)') || (jsonb_build_object(
        'outcome', 'replayed', 'was', state, 'token', lease_token, 'ended_at', now(), 'error',
        CASE WHEN error LIKE '$sealed:%%' THEN split_part(error, E'\n', -1) ELSE right(error, 500) END)
        -- An attempt that completed is on record nowhere else.
        || CASE WHEN state = 'completed' THEN jsonb_build_object(
            'attempt', retry_count + crash_count + 1, 'worker', worker_id, 'started_at', started_at,
            'completed_at', task.completed_at) ELSE '{}' END))
