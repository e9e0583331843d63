-- The leader sleeps for at most a second: it is woken only for a slot that comes sooner.
CASE WHEN schedule.next_slot < now() + interval '2 seconds' THEN pg_notify('tasklib_' || (
    SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE pg_class.oid = schedule.tableoid), %(message)s) END
