-- A task that waits for its time, or for its retry, is due now. Not one at a gate, and not a durable task that sleeps or
-- waits for a signal: their time is not what they wait for. A claim that was faster has changed the state, or the due
-- time has come: then nothing is changed.
WITH changed AS (
    UPDATE {schema.}tasks AS task
    SET scheduled_at = (SELECT CASE WHEN task.next_retry_at IS NULL THEN now() ELSE task.scheduled_at END),
        next_retry_at = (SELECT CASE WHEN task.next_retry_at IS NOT NULL THEN now() END)
    WHERE id = %(id)s::text::uuid
      AND state IN ('pending', 'failed')
      AND {due} > now()
      AND waits_for IS NULL
      AND awaited_signals IS NULL
      AND {include owned}
    RETURNING state, task.queue, task.name, task.required_capabilities
),
{include audited}
SELECT state FROM (SELECT state, {include wake_one} FROM changed AS task) AS told
