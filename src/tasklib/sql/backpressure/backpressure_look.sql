-- Of these queues and names, those with bounds, and what waits.
SELECT subject, max_wait, max_pending, oldest_age, pending FROM {schema.}tasklib_pressure(%(subjects)s::text[])
