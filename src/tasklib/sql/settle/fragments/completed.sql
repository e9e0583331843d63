SET state = 'completed',
        result = done.result::jsonb,
        error = NULL,
        -- Of a transactional task the transaction began long ago.
        completed_at = done.moment,
        next_retry_at = NULL,
        -- worker_id stays: the row says which worker completed it, at no cost.
        locked_until = NULL
