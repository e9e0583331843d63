-- Who keeps dead rows from being vacuumed, by a snapshot or by an open transaction that has written. Sessions of other
-- databases don't, a standby's feedback does. Sessions hidden from this user are only counted.
SELECT pid, usename::text, application_name, COALESCE(client_addr::text, 'local'), COALESCE(state, backend_type),
       extract(epoch FROM clock_timestamp() - xact_start)::float8, query = '<insufficient privilege>'
FROM pg_stat_activity
WHERE (datname = current_database() OR backend_type = 'walsender')
  AND pid <> pg_backend_pid()
  AND COALESCE(backend_type, '') <> 'autovacuum worker'
  AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL OR query = '<insufficient privilege>')
ORDER BY xact_start
