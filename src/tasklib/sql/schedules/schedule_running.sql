-- A run of a schedule that is under way.
SELECT id::text FROM {schema.}tasks WHERE schedule = %(name)s AND state = 'running' ORDER BY id LIMIT 1
