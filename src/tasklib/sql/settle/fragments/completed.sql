SET state = 'completed',
        result = done.result::jsonb,
        error = NULL,
        -- Of a transactional task the transaction began long ago.
        completed_at = clock_timestamp(),
        next_retry_at = NULL,
        worker_id = NULL,
        locked_until = NULL
