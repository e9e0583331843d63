-- The shards whose tables are in this database, without touching them: the caller's transaction must survive.
SELECT namespace.nspname::text, substring(function.prosrc FROM '[0-9]+')::integer, pg_function_is_visible(function.oid)
FROM pg_proc AS function
JOIN pg_namespace AS namespace ON namespace.oid = function.pronamespace
WHERE function.proname = 'tasklib_shard' AND function.pronargs = 0
