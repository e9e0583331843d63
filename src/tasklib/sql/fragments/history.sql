jsonb_path_query_array(COALESCE(task.history, '[]'), '$[last - 48 to last] ? (@ != null)') || jsonb_build_object(
        'attempt', task.retry_count + task.crash_count + 1, 'token', task.lease_token, 'outcome', attempt.outcome,
        'worker', task.worker_id, 'started_at', task.started_at, 'ended_at', now(),
        -- Of a sealed error only its type: the rest is sealed as a whole.
        'error', CASE WHEN attempt.error LIKE '$sealed:%%' THEN split_part(attempt.error, E'\n', -1)
                      ELSE right(attempt.error, 500) END)
