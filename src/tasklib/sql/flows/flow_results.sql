-- How these tasks ended. What is sealed is of use only as a whole, and with the name of its task.
SELECT id::text, state, result, CASE WHEN key_id IS NULL THEN right(error, 2000) ELSE error END,
       CASE WHEN key_id IS NOT NULL THEN name END
FROM {schema.}tasks WHERE id = ANY (%(ids)s::text::uuid[])
