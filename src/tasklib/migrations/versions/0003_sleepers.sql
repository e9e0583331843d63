-- True while a worker waits for a notification.
ALTER TABLE {schema.}worker_registrations ADD COLUMN asleep boolean NOT NULL DEFAULT false;

-- A commit that notifies takes a lock of the whole server, so eight busy producers would wait for each other: notify
-- only if somebody sleeps. Whoever falls asleep says so first, and then waits for those who may not have seen it
-- (worker/sleep.py). They see it if they look after they began to write, which a snapshot from before would prevent:
-- so those in a stricter isolation always notify.
-- It runs as its owner: a producer needs no right to see the workers. The schema is written into it, because whoever
-- inserts may have any search_path.
DO $migration$
BEGIN
    EXECUTE format($function$
        CREATE OR REPLACE FUNCTION %1$s.tasklib_wake() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
        BEGIN
            IF EXISTS (SELECT FROM %1$s.worker_registrations WHERE asleep)
               OR pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed' THEN
                PERFORM pg_catalog.pg_notify(pg_catalog.concat('tasklib_', TG_TABLE_SCHEMA), '');
            END IF;
            RETURN NULL;
        END
        $$
    $function$, (SELECT typnamespace::regnamespace FROM pg_type WHERE oid = pg_typeof(NULL::{schema.}tasks)));
END
$migration$;
