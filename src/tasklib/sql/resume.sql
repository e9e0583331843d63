-- Idle workers look again at once.
DELETE FROM {schema.}pauses AS task WHERE kind = %(kind)s AND value = %(value)s RETURNING 1, {include wake}
