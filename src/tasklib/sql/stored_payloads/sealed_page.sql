-- The sealed tasks of one key, in the order of their ids.
SELECT id::text, name, state, lease_token, kwargs::text, result::text, error, progress::text
FROM {schema.}tasks
WHERE key_id = %(key_id)s
  AND id > %(after)s::text::uuid
ORDER BY id
LIMIT %(limit)s
