-- A task as its editor saw it. A claim raises the token, so what began meanwhile is another version.
md5(ROW(task.lease_token, task.queue, task.priority, task.max_retries, task.timeout_seconds, task.tags,
        task.required_capabilities, task.kwargs, task.scheduled_at, task.next_retry_at)::text)
