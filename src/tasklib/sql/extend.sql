-- Extend leases that are still ours and have not run out: a lost lease is never taken back. A row that another
-- transaction has locked is left out, so that the others don't wait for it. By the clock and not by when the statement
-- began: it may have been held up.
WITH held AS (
    SELECT task.id
    FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) AS given (id, token)
    JOIN {schema.}tasks AS task ON task.id = given.id
    WHERE {still_running}
      AND task.lease_token = given.token
      AND task.worker_id = %(worker)s
      AND task.locked_until > clock_timestamp()
    ORDER BY task.id
    FOR NO KEY UPDATE OF task SKIP LOCKED
)
UPDATE {schema.}tasks AS task
SET locked_until = clock_timestamp() + make_interval(secs => %(lease)s)
FROM held
WHERE task.id = held.id
RETURNING task.id::text
