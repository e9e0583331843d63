-- The slots of one schedule that were not run, the newest first.
SELECT reason, count, first_slot, last_slot
FROM {schema.}schedule_skips
WHERE schedule = %(name)s
ORDER BY last_slot DESC
LIMIT %(limit)s
