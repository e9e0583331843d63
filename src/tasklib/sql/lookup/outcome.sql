-- What a waiting caller needs to know of a task.
SELECT name, state, result, error, submitted_by FROM {schema.}tasks WHERE id = %(id)s::uuid AND {include owned}
