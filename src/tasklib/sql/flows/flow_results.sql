-- How these tasks ended.
SELECT id::text, state, result, right(error, 2000) FROM {schema.}tasks WHERE id = ANY (%(ids)s::text::uuid[])
