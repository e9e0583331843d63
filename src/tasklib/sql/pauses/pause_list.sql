SELECT kind, value, paused_at FROM {schema.}pauses ORDER BY kind, value
