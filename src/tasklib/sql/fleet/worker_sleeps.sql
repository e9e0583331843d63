-- Tell producers whether this worker waits for a notification. A worker that was declared dead has no say.
UPDATE {schema.}worker_registrations SET asleep = %(asleep)s::bool
WHERE id = %(id)s AND reported_status <> 'dead'
RETURNING true
