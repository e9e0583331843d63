-- The schedules that run within a time, the soonest first.
SELECT name, spec
FROM {schema.}schedules
WHERE paused_at IS NULL AND retired_at IS NULL AND next_slot <= now() + make_interval(secs => %(within)s)
ORDER BY next_slot
LIMIT %(limit)s
