-- First the time now and the first slot to come; then the schedules of which a slot is due, the oldest first, and those
-- with a slot that waited for an earlier run that is finished. Some are read ahead of their time: those for which nothing
-- but the time decides. The cost doesn't depend on how many schedules there are.
WITH found AS (
    (SELECT name, revision, spec, next_slot, waiting_slot, resumed_at FROM {schema.}schedules AS schedule
     WHERE paused_at IS NULL AND retired_at IS NULL AND next_slot <= now() + make_interval(secs => %(ahead)s)
       AND (next_slot <= now() OR (spec ->> 'overlap' = 'allow' AND NOT spec ? 'pause_after'))
       AND name <> ALL(%(unreadable)s::text[])
     ORDER BY next_slot
     LIMIT %(limit)s)
    UNION ALL
    (SELECT name, revision, spec, next_slot, waiting_slot, resumed_at FROM {schema.}schedules AS schedule
     WHERE paused_at IS NULL AND retired_at IS NULL AND waiting_slot IS NOT NULL
       AND (next_slot IS NULL OR next_slot > now())
       AND name <> ALL(%(unreadable)s::text[])
       AND NOT {include has_unfinished_run}
     ORDER BY waiting_slot
     LIMIT %(limit)s)
)
SELECT now() AS now, NULL AS name, NULL AS revision, NULL AS rule,
       (SELECT next_slot FROM {schema.}schedules AS schedule
        WHERE paused_at IS NULL AND retired_at IS NULL AND next_slot > now()
        ORDER BY next_slot
        LIMIT 1) AS next_slot,
       NULL::timestamptz AS waiting_slot, NULL::boolean AS is_running, NULL::boolean AS keeps_failing
UNION ALL
SELECT NULL, name, revision, (spec - %(of_tasks)s::text[])::text, next_slot, waiting_slot,
       CASE WHEN spec ->> 'overlap' <> 'allow' THEN {include has_unfinished_run} END,
       -- The last runs since the schedule was resumed are as many dead letters as it bears.
       CASE WHEN spec ? 'pause_after' THEN (
           SELECT count(*) = (schedule.spec ->> 'pause_after')::int AND bool_and(state = 'dead_letter')
           FROM (SELECT state FROM {schema.}tasks
                 WHERE tasks.schedule = schedule.name AND slot IS NOT NULL
                   AND state IN ('completed', 'cancelled', 'dead_letter')
                   AND (schedule.resumed_at IS NULL OR completed_at > schedule.resumed_at)
                 ORDER BY slot DESC
                 LIMIT (schedule.spec ->> 'pause_after')::int) AS last_runs) END
FROM found AS schedule
ORDER BY now, next_slot, name
