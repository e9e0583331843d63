DELETE FROM {schema.}worker_registrations WHERE id = %(id)s
