-- A slot without a reader keeps rows, or WAL, for ever.
SELECT slot_name::text, slot_type, active, age(COALESCE(xmin, catalog_xmin)),
       (CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) END)::float8
FROM pg_replication_slots
ORDER BY slot_name
