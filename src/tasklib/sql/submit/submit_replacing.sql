-- Insert tasks, each unless a task with its merge key waits: that one takes the new arguments, or only a new time. Lock
-- first, look second: a rival's claim is waited for, and a task that it took is not found here any more.
WITH {include merging},
waiting AS (
    SELECT * FROM (
        SELECT fresh.id AS given_id, task.id,
               CASE WHEN fresh.debounce IS NOT NULL
                    THEN LEAST(fresh.due, task.created_at + make_interval(secs => fresh.max_wait))
                    WHEN fresh.due IS NOT NULL THEN GREATEST(now(), fresh.due) END AS moved
        FROM fresh
        JOIN {schema.}tasks AS task ON {include same_merge_key}
        WHERE (fresh.on_duplicate = 'replace' OR fresh.debounce IS NOT NULL)
          AND task.state IN ('pending', 'failed')
          AND (CAST(%(owner)s AS text) IS NULL OR task.submitted_by = CAST(%(owner)s AS text))
        ORDER BY task.name, task.merge_key
        FOR NO KEY UPDATE OF task
    ) AS locked
),
changed AS (
    UPDATE {schema.}tasks AS task
    SET kwargs = CASE WHEN replaces THEN fresh.kwargs ELSE task.kwargs END,
        payload_version = CASE WHEN replaces THEN fresh.payload_version ELSE task.payload_version END,
        key_id = CASE WHEN replaces THEN fresh.key_id ELSE task.key_id END,
        queue = CASE WHEN replaces THEN fresh.queue ELSE task.queue END,
        lane = CASE WHEN replaces THEN COALESCE(fresh.lane, '') ELSE task.lane END,
        priority = CASE WHEN replaces THEN fresh.priority ELSE task.priority END,
        tags = CASE WHEN replaces THEN fresh.tags ELSE task.tags END,
        required_capabilities = CASE WHEN replaces THEN fresh.required_capabilities ELSE task.required_capabilities END,
        max_retries = CASE WHEN replaces THEN fresh.max_retries ELSE task.max_retries END,
        timeout_seconds = CASE WHEN replaces THEN fresh.timeout_seconds ELSE task.timeout_seconds END,
        trace_context = CASE WHEN replaces THEN fresh.trace_context ELSE task.trace_context END,
        -- Without a time of its own, a submission leaves the task's place in line as it is.
        scheduled_at = CASE WHEN task.next_retry_at IS NULL AND moved IS NOT NULL THEN moved ELSE task.scheduled_at END,
        next_retry_at = CASE WHEN task.next_retry_at IS NOT NULL THEN COALESCE(moved, task.next_retry_at) END
    FROM waiting
    JOIN fresh ON fresh.id = waiting.given_id
    CROSS JOIN LATERAL (SELECT fresh.on_duplicate = 'replace' AS replaces) AS how
    WHERE task.id = ANY (ARRAY[waiting.id])
    RETURNING waiting.given_id, task.id, task.submitted_by
),
met AS (
    SELECT given_id, id, 'held' AS what, submitted_by FROM held
    UNION ALL
    SELECT given_id, id, 'changed', submitted_by FROM changed
),
{include merged}
