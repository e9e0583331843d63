-- Store whether this worker sleeps until a notification, for producers to read. Ignored for a worker declared dead.
UPDATE {schema.}worker_registrations SET asleep = %(asleep)s::bool
WHERE id = %(id)s AND reported_status <> 'dead'
RETURNING true
