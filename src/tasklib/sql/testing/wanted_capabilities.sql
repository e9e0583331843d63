-- For tests: what the waiting tasks require.
SELECT DISTINCT unnest(required_capabilities) FROM {schema.}tasks WHERE state IN ('pending', 'failed')
