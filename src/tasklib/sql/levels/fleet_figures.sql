-- The fleet and the table in a few numbers.
SELECT (SELECT COALESCE(jsonb_object_agg(status, ARRAY[workers, capacity, load]), '{}')
        FROM (SELECT status, count(*) AS workers, sum(capacity) AS capacity, sum(current_load) AS load
              FROM {schema.}workers GROUP BY status) AS fleet),
       (SELECT term FROM {schema.}leadership),
       COALESCE((SELECT expires_at > now() FROM {schema.}leadership), false),
       (SELECT extract(epoch FROM now() - taken_at)::float8 FROM {schema.}snapshots),
       pg_stat_get_dead_tuples('{schema.}tasks'::regclass),
       -- What prevents VACUUM from removing dead rows: sessions, slots and prepared transactions visible to this user.
       greatest(0, (SELECT max(age(backend_xmin)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()),
                (SELECT max(greatest(age(xmin), age(catalog_xmin))) FROM pg_replication_slots),
                (SELECT max(age(transaction)) FROM pg_prepared_xacts)),
       greatest(0, (SELECT max(extract(epoch FROM now() - xact_start))::float8
                    FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid())),
       greatest(0, (SELECT extract(epoch FROM now() - min(next_slot))::float8 FROM {schema.}schedules
                    WHERE paused_at IS NULL AND retired_at IS NULL AND next_slot IS NOT NULL)),
       (SELECT count(*) FROM {schema.}schedules WHERE paused_at IS NOT NULL),
       (SELECT count(*)
        FROM (SELECT id, schedule FROM {schema.}tasks
              WHERE state = 'dead_letter' AND completed_at > now() - interval '1 day'
              ORDER BY completed_at DESC LIMIT 1000) AS given_up
        JOIN {schema.}schedules ON schedules.name = given_up.schedule AND schedules.last_task = given_up.id),
       -- Of a fleet over shards also each worker: one that serves several of them counts once.
       CASE WHEN %(each)s::boolean
            THEN (SELECT jsonb_object_agg(id, jsonb_build_array(status, capacity, current_load)) FROM {schema.}workers) END
