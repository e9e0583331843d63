-- The leader sleeps for at most a second: it is woken only for a slot that comes sooner.
CASE WHEN changed.next_slot < now() + interval '2 seconds' THEN {schema.}tasklib_wake_all(%(message)s)::text END
