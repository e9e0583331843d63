(%(owner)s::text IS NULL OR submitted_by = %(owner)s::text)
