WITH old AS (
    SELECT {columns}
    FROM {source}
), moved AS (
    SELECT old.*,
           CASE
               -- Its worker was stopped: it begins again.
               WHEN state = 'running' THEN 'pending'
               -- It failed for good: no time for another attempt, and either an end or no retry left.
               WHEN state = 'failed' AND next_retry_at IS NULL
                    AND (completed_at IS NOT NULL OR retry_count >= max_retries) THEN 'dead_letter'
               ELSE state
           END AS is_now
    FROM old
), copied AS (
    INSERT INTO {target} (
        id, name, state, args, kwargs, result, error, retry_count, max_retries, next_retry_at, scheduled_at, started_at,
        completed_at, created_at, timeout_seconds, priority, tags)
    SELECT id, name, is_now, args, kwargs,
           CASE WHEN is_now <> 'completed' THEN NULL
                -- A result that is not kept as {"value": ...} is wrapped.
                WHEN jsonb_typeof(result) = 'object' AND result ? 'value' AND result - 'value' = '{}' THEN result
                ELSE jsonb_build_object('value', COALESCE(result, 'null')) END,
           error, retry_count, max_retries,
           CASE WHEN is_now = 'failed' THEN COALESCE(next_retry_at, scheduled_at) END,
           scheduled_at,
           CASE WHEN is_now <> 'pending' THEN started_at END,
           CASE WHEN is_now IN ('completed', 'cancelled', 'dead_letter')
                THEN COALESCE(completed_at, started_at, created_at) END,
           created_at, CASE WHEN timeout_seconds > 0 THEN timeout_seconds END, priority, tags
    FROM moved
    -- In the order of the ids, like every statement that writes several rows.
    ORDER BY id
    ON CONFLICT (id) DO NOTHING
    RETURNING state
)
SELECT state, count(*) FROM copied GROUP BY state ORDER BY state
