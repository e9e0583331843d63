-- All that a durable task has on record, in the order in which it was recorded, and the time.
SELECT clock.now, kind, name, result::text, recorded_at
FROM (SELECT clock_timestamp() AS now) AS clock
LEFT JOIN {schema.}steps ON task = %(id)s::text::uuid
ORDER BY recorded_at, kind, name
