{schema.}tasklib_wake_all(%(message)s)::text
