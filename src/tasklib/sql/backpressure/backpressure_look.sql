-- Of these queues, those with bounds: how long the oldest due task waits, exactly, and how many waited when the leader
-- counted last. Lanes are read only for a queue that has a bound on the wait.
WITH RECURSIVE {include lanes_with_tasks}
SELECT queue, max_wait, max_pending,
       CASE WHEN max_wait IS NOT NULL THEN (
           SELECT extract(epoch FROM now() - min(due))::float8
           FROM (SELECT queue, due FROM lanes LIMIT %(most_lanes)s) AS lane
           WHERE lane.queue = bounds.queue) END,
       CASE WHEN max_pending IS NOT NULL THEN (
           SELECT sum((level ->> 'depth')::bigint)::bigint
           FROM {schema.}snapshots
           CROSS JOIN jsonb_array_elements(figures -> 'levels') AS level
           WHERE level ->> 'queue' = bounds.queue) END
FROM {schema.}backpressure AS bounds
WHERE queue = ANY (%(queues)s::text[])
ORDER BY queue
