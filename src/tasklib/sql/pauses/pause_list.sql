SELECT kind, value, paused_at FROM {schema.}pauses WHERE kind IN ('queue', 'name') ORDER BY kind, value
