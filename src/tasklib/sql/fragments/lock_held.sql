{still_running}
      AND task.lease_token = given.token
      AND task.worker_id = %(worker)s
    -- In the order of ids, so that two batches can't deadlock. A row that another transaction has locked is left out, so
    -- that the others don't wait for it.
    ORDER BY given.id
    FOR NO KEY UPDATE OF task SKIP LOCKED
