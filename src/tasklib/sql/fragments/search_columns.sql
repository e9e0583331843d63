task.id, task.state, left(task.name, 500) AS name, left(task.queue, 500) AS queue, task.priority, task.retry_count,
           task.max_retries, task.created_at, task.scheduled_at, task.next_retry_at, task.started_at,
           task.completed_at, left(task.worker_id, 500) AS worker_id, task.cancel_requested_at,
           left(split_part(rtrim(task.error, E' \t\r\n'), E'\n', -1), 500) AS error, task.crash_count,
           CASE WHEN task.state = 'dead_letter' THEN task.history -> -1 -> 'attempt' END AS last_attempt,
           CASE WHEN task.key_id IS NULL AND pg_column_size(task.kwargs) <= 1000 THEN task.kwargs END AS kwargs
