task.name = fresh.name AND task.merge_key = fresh.merge_key AND task.merge_while = fresh.merge_while
        AND task.merge_key IS NOT NULL
        AND task.state IN ('pending', 'running', 'failed')
        AND (task.merge_while = 'unfinished' OR task.lease_token = 0)
