-- A block of a running task gives its place back; a trigger wakes workers for it.
DELETE FROM {schema.}places
WHERE task = %(id)s::text::uuid AND token = %(token)s::bigint AND block = %(block)s::int
