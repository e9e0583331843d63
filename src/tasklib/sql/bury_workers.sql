-- Workers that have missed their heartbeats are dead; the dead are forgotten after a while.
WITH {include leader},
forgotten AS (
    DELETE FROM {schema.}workers
    WHERE EXISTS (SELECT FROM leader)
      AND status = 'dead'
      AND last_heartbeat < now() - make_interval(secs => %(forget_after)s)
      AND NOT EXISTS (SELECT FROM {schema.}tasks WHERE state = 'running' AND worker_id = workers.id)
),
changed AS (
    UPDATE {schema.}workers
    SET status = 'dead', current_load = 0, asleep = false
    WHERE EXISTS (SELECT FROM leader)
      AND status <> 'dead'
      AND last_heartbeat < now() - make_interval(secs => %(timeout)s)
    RETURNING id
),
counted AS (
    INSERT INTO {schema.}tally_deltas (outcome, count) SELECT 'worker_died', count(*) FROM changed HAVING count(*) > 0
)
SELECT id FROM changed
