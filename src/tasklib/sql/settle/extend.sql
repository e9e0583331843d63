-- Extend leases that are still ours and have not run out: a lost lease is never taken back. By the clock and not by when
-- the statement began: it may have been held up.
WITH held AS (
    SELECT * FROM (
        SELECT task.id, clock_timestamp() + make_interval(secs => %(lease)s) AS locked_until
        FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) AS given (id, token)
        JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[given.id])
        WHERE task.locked_until > clock_timestamp()
          AND {include lock_held}
    ) AS locked
)
UPDATE {schema.}tasks AS task
SET locked_until = held.locked_until
FROM held
WHERE task.id = ANY (ARRAY[held.id])
RETURNING task.id::text
