-- A transaction id that is younger than every transaction that has begun to write by now. Of where the tables are: on a
-- Citus cluster that may be another server than the one that is asked.
SELECT pg_current_xact_id()::text::bigint FROM {schema.}settings
