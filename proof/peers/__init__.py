"""The same faults for TaskLib, Procrastinate and PgQueuer: kill -9, SIGSTOP, a restart of the database."""
