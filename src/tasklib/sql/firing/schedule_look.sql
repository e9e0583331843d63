-- Schedules of which a slot is due now or within the horizon, the oldest first; and those with a slot that waits for an
-- earlier run, once that is finished. What it costs doesn't depend on how many schedules there are.
WITH found AS (
    (SELECT * FROM {schema.}schedules
     WHERE paused_at IS NULL AND retired_at IS NULL AND next_slot <= now() + make_interval(secs => %(horizon)s)
       AND name <> ALL(%(unreadable)s::text[])
     ORDER BY next_slot
     LIMIT %(limit)s)
    UNION
    (SELECT * FROM {schema.}schedules
     WHERE paused_at IS NULL AND retired_at IS NULL AND waiting_slot IS NOT NULL
       AND name <> ALL(%(unreadable)s::text[])
       AND NOT EXISTS (SELECT FROM {schema.}tasks
                       WHERE schedule = schedules.name AND state IN ('pending', 'running', 'failed'))
     ORDER BY waiting_slot
     LIMIT %(limit)s)
)
SELECT now(), name, revision, task, spec, next_slot, waiting_slot, last_slot,
       CASE WHEN spec ->> 'overlap' <> 'allow' THEN
           EXISTS (SELECT FROM {schema.}tasks
                   WHERE schedule = found.name AND state IN ('pending', 'running', 'failed')) END,
       -- The last runs since the schedule was resumed are as many dead letters as it bears.
       CASE WHEN spec ? 'pause_after' THEN (
           SELECT count(*) = (found.spec ->> 'pause_after')::int AND bool_and(state = 'dead_letter')
           FROM (SELECT state FROM {schema.}tasks
                 WHERE schedule = found.name AND slot IS NOT NULL
                   AND state IN ('completed', 'cancelled', 'dead_letter')
                   AND (found.resumed_at IS NULL OR completed_at > found.resumed_at)
                 ORDER BY slot DESC
                 LIMIT (found.spec ->> 'pause_after')::int) AS last_runs) END
FROM found
ORDER BY COALESCE(waiting_slot, next_slot), name
