-- For tests, which don't wait: the times of these tasks have come, in the order of their times. They lie microseconds
-- back, so that no task seems to have waited for long and is promoted.
WITH waiting AS (
    SELECT id, now() - make_interval(secs => row_number() OVER (ORDER BY {due} DESC, id DESC) / 1e6) AS moment
    FROM {schema.}tasks
    WHERE state = ANY (%(states)s::text[])
      AND {due} > now()
      AND queue = ANY (COALESCE(%(queues)s::text[], ARRAY[queue]))
      AND name = ANY (%(names)s::text[])
      AND required_capabilities <@ %(capabilities)s::text[]
)
UPDATE {schema.}tasks AS task
SET scheduled_at = CASE WHEN next_retry_at IS NULL THEN moment ELSE scheduled_at END,
    next_retry_at = CASE WHEN next_retry_at IS NOT NULL THEN moment END
FROM waiting
WHERE task.id = waiting.id
  AND task.state = ANY (%(states)s::text[])
RETURNING task.id::text
