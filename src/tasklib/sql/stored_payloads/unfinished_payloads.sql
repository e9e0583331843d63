-- The stored arguments of tasks that are still to run, in the order of their ids.
SELECT id::text, name, payload_version, kwargs::text, ARRAY(SELECT jsonb_object_keys(args))
FROM {schema.}tasks
WHERE id > %(after)s::text::uuid
  AND state IN ('pending', 'failed', 'running')
ORDER BY tasks.id -- not the text: the index has the id
LIMIT %(limit)s
