-- For tests, which don't wait: the times of these tasks have come, in the order of their times. They lie microseconds
-- back, so that no task seems to have waited for long and is promoted.
WITH waiting AS (
    SELECT id, {due} AS due, now() - make_interval(secs => row_number() OVER (ORDER BY {due} DESC, id DESC) / 1e6) AS moment
    FROM {schema.}tasks
    WHERE state = ANY (%(states)s::text[])
      AND {due} > now()
      -- A durable task that waits for a signal and nothing else is never due.
      AND {due} < '9999-12-29 00:00:00+00'
      AND queue = ANY (COALESCE(%(queues)s::text[], ARRAY[queue]))
      AND name = ANY (%(names)s::text[])
      AND required_capabilities <@ %(capabilities)s::text[]
),
-- The moments that durable tasks have on record have come, too.
come AS (
    UPDATE {schema.}steps AS step
    SET result = jsonb_build_object('value', moment)
    FROM waiting
    WHERE step.task = waiting.id
      AND step.kind IN ('sleep', 'timer', 'deadline')
      AND (step.result ->> 'value')::timestamptz BETWEEN now() AND due
)
UPDATE {schema.}tasks AS task
SET scheduled_at = CASE WHEN next_retry_at IS NULL THEN moment ELSE scheduled_at END,
    next_retry_at = CASE WHEN next_retry_at IS NOT NULL THEN moment END
FROM waiting
WHERE task.id = ANY (ARRAY[waiting.id])
  AND task.state = ANY (%(states)s::text[])
RETURNING task.id::text
