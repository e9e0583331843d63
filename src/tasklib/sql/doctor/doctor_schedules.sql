SELECT name, task, spec, extract(epoch FROM now() - next_slot)::float8
FROM {schema.}schedules
WHERE paused_at IS NULL AND retired_at IS NULL AND next_slot IS NOT NULL
ORDER BY next_slot
LIMIT %(limit)s
