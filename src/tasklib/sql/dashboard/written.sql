-- Changes when rows of ours are written, by the counters of PostgreSQL, which follow within a second or so. Heartbeats, the
-- leader's renewals and its snapshots, which are updates, don't count: they never stop.
SELECT CASE WHEN current_setting('track_counts')::bool THEN
    string_agg(concat_ws(' ', pg_stat_get_tuples_inserted(oid), pg_stat_get_tuples_deleted(oid),
                         CASE WHEN relname NOT IN ('worker_registrations', 'leadership', 'snapshots')
                              THEN pg_stat_get_tuples_updated(oid) END), ',' ORDER BY oid) END
FROM pg_class
WHERE relkind = 'r' AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = '{schema.}tasks'::regclass)
