-- A transaction id that is younger than every transaction that has begun to write by now.
SELECT pg_current_xact_id()::text::bigint
