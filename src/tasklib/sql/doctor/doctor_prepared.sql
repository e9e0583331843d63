SELECT gid, owner::text, extract(epoch FROM clock_timestamp() - prepared)::float8
FROM pg_prepared_xacts
WHERE database = current_database()
ORDER BY prepared
