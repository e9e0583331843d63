-- Asked through the table, told through the channel; the worker says `draining` when it does.
UPDATE {schema.}workers AS task
SET drain_requested_at = COALESCE(drain_requested_at, now())
WHERE id = %(id)s AND status <> 'dead'
RETURNING status, {include wake}
