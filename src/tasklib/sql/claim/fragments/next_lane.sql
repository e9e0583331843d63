-- The first lane behind `from` and before `end`.
SELECT queue, lane, required_capabilities, priority, {due} AS due
FROM {schema.}tasks
WHERE state IN ('pending', 'failed') AND waits_for IS NULL
  AND (queue, lane, required_capabilities, priority) > (from_queue, from_lane, from_capabilities, from_priority)
  AND (queue, lane, required_capabilities, priority) < (end_queue, end_lane, end_capabilities, end_priority)
ORDER BY queue, lane, required_capabilities, priority, {due}, id
LIMIT 1
