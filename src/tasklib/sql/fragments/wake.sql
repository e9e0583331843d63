pg_notify('tasklib_' || (
    SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE pg_class.oid = task.tableoid), %(message)s)
