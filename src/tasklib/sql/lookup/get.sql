SELECT {task_columns} FROM {schema.}tasks WHERE id = %(id)s::uuid AND {include owned}
