SELECT nspname
FROM pg_class
JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE pg_class.oid = to_regclass(%(tasks)s) AND to_regclass(%(versions)s) IS NOT NULL
