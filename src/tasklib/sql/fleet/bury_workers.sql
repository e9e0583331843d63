-- Workers that have missed their heartbeats are declared dead: from now on they can't come back under this id. The dead
-- are forgotten after a while, and so are old deploys.
WITH {include leader},
forgotten AS (
    DELETE FROM {schema.}worker_registrations AS worker
    WHERE EXISTS (SELECT FROM leader)
      AND reported_status = 'dead'
      AND last_heartbeat < now() - make_interval(secs => %(forget_after)s)
      AND NOT EXISTS (SELECT FROM {schema.}tasks WHERE state = 'running' AND worker_id = worker.id)
),
forgotten_deploys AS (
    DELETE FROM {schema.}deploys WHERE EXISTS (SELECT FROM leader) AND seen_at < now() - interval '31 days'
),
changed AS (
    UPDATE {schema.}worker_registrations
    SET reported_status = 'dead', current_load = 0, asleep = false
    WHERE EXISTS (SELECT FROM leader)
      AND reported_status <> 'dead'
      AND id IN (SELECT id FROM {schema.}workers WHERE status = 'dead')
    RETURNING id
),
counted AS (
    INSERT INTO {schema.}stats_deltas (outcome, count) SELECT 'worker_died', count(*) FROM changed HAVING count(*) > 0
)
SELECT id FROM changed
