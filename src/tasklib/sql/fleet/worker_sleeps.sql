-- Store whether this worker sleeps until a notification, for producers to read, and the channel on which it is woken.
-- Ignored for a worker declared dead.
UPDATE {schema.}worker_registrations SET asleep = %(asleep)s::bool, wake_channel = COALESCE(%(channel)s::text, wake_channel)
WHERE id = %(id)s AND reported_status <> 'dead'
RETURNING true
