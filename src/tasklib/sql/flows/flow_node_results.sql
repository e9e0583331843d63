-- One page of what the tasks of some nodes returned, in the order of submission.
SELECT id::text, state, result, right(error, 2000)
FROM {schema.}tasks
WHERE flow = %(flow)s::text::uuid
  AND node = ANY (%(nodes)s::text::text[])
  AND (state = 'completed' OR (%(settled)s::bool AND state IN ('cancelled', 'dead_letter')))
  AND (%(after)s::text IS NULL OR id > %(after)s::text::uuid)
ORDER BY id
LIMIT %(limit)s::int
