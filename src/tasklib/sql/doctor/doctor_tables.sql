-- Our tables as the statistics know them, with their options.
SELECT relname::text, n_live_tup::bigint, n_dead_tup::bigint,
       extract(epoch FROM now() - greatest(last_vacuum, last_autovacuum))::float8,
       pg_relation_size(pg_class.oid), COALESCE(reloptions, '{}')
FROM pg_class
JOIN LATERAL (SELECT * FROM pg_stat_all_tables WHERE relid = pg_class.oid) AS statistics USING (relname)
WHERE relnamespace = (SELECT typnamespace FROM pg_type WHERE oid = pg_typeof(NULL::{schema.}tasks))
  AND relname = ANY (%(tables)s::text[])
ORDER BY relname
