-- Tell producers whether this worker waits for a notification. A worker that was declared dead has no say.
UPDATE {schema.}workers SET asleep = %(asleep)s::bool WHERE id = %(id)s AND status <> 'dead' RETURNING true
