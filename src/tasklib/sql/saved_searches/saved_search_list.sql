SELECT name, search, saved_by, saved_at FROM {schema.}saved_searches ORDER BY name LIMIT %(limit)s
