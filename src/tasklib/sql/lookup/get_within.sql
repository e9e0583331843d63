-- One task, without values that are too large.
SELECT {task_columns_within} FROM {schema.}tasks WHERE id = %(id)s::uuid AND {include owned}
