-- What failed, was cancelled or given up, the newest first. Written only by the tasks it speaks of: one that completes
-- pays nothing for it.
CREATE INDEX tasks_set_aside ON {schema.}tasks (state, id) WHERE state IN ('failed', 'cancelled', 'dead_letter');

-- The workers, with the one rule of who is alive: a worker that has been silent for longer than its timeout is dead,
-- whether or not a leader has noticed. Everything that shows or chooses workers reads this.
CREATE VIEW {schema.}workers AS
SELECT id,
       CASE WHEN last_heartbeat < now() - make_interval(secs => heartbeat_timeout_seconds) THEN 'dead'
            ELSE reported_status END AS status,
       queues, names, capabilities, capacity, current_load, version, host, pid, started_at, last_heartbeat,
       heartbeat_timeout_seconds, drain_requested_at, asleep, token_id, counted, reported_status
FROM {schema.}worker_registrations;
