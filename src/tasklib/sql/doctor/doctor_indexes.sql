-- Every index on our tables, ours or not.
SELECT pg_namespace.nspname::text, owner.relname::text, index.relname::text, indisvalid AND indisready,
       pg_relation_size(index.oid), index.reltuples::float8
FROM pg_index
JOIN pg_class AS index ON index.oid = indexrelid
JOIN pg_class AS owner ON owner.oid = indrelid
JOIN pg_namespace ON pg_namespace.oid = owner.relnamespace
WHERE owner.relnamespace = (SELECT typnamespace FROM pg_type WHERE oid = pg_typeof(NULL::{schema.}tasks))
  AND owner.relname = ANY (%(tables)s::text[])
ORDER BY index.relname
