COALESCE(task.begun_token = task.lease_token, false)
