-- What a task's error has in common with others of the same cause.
SELECT {schema.}tasklib_fingerprint(name, error) FROM {schema.}tasks WHERE id = %(id)s::text::uuid AND error IS NOT NULL
