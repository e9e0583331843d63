SELECT id::text, retry_count FROM {schema.}tasks WHERE id = ANY (%(ids)s::uuid[])
