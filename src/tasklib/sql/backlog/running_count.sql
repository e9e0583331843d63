SELECT count(*) FROM {schema.}tasks WHERE state = 'running'
