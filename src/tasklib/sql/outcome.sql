-- What a waiting caller needs to know of a task.
SELECT name, state, result, error FROM {schema.}tasks WHERE id = %(id)s::uuid AND {include owned}
