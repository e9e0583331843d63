SELECT subject, max_wait, max_pending, changed_at FROM {schema.}backpressure ORDER BY subject
