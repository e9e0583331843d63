-- How many due tasks of its queue go before a due task that is not paused, and how long a slot is taken by one of them.
-- Everything here is bounded: a look per lane, a count that ends at `most`, and samples of `sample` rows.
WITH RECURSIVE asked AS (
    SELECT id, queue, name, lane, required_capabilities, priority, {due} AS due, medium_after, high_after,
           %(most)s::bigint AS most,
           {schema.}tasklib_effective_priority(priority, {due}, medium_after, high_after, now()) AS effective_priority
    FROM {schema.}tasks
    CROSS JOIN {include thresholds}
    WHERE id = %(id)s::text::uuid AND state IN ('pending', 'failed') AND waits_for IS NULL AND {due} <= now() AND {include owned}
      AND NOT EXISTS (
          SELECT FROM {schema.}pauses
          WHERE (kind, value) IN (('queue', tasks.queue), ('name', tasks.name), ('open_breaker', tasks.name)))
),
-- The workers that could take it. Tasks that none of them could take are not ahead of it.
fitting AS (
    SELECT workers.names, workers.capabilities, workers.capacity
    FROM asked
    JOIN {schema.}workers
      ON workers.status = 'active'
     AND workers.drain_requested_at IS NULL
     AND (workers.queues IS NULL OR asked.queue = ANY (workers.queues))
     AND asked.name = ANY (COALESCE(workers.names, ARRAY[asked.name]))
     AND asked.required_capabilities <@ workers.capabilities
),
serving AS (
    SELECT DISTINCT unnest(names) AS name FROM fitting
),
-- If no worker matches, all names count.
any_name AS (
    SELECT NOT EXISTS (SELECT FROM fitting) OR EXISTS (SELECT FROM fitting WHERE names IS NULL) AS counts
),
-- The lanes of its queue, from head to head as in lanes.sql.
lanes AS (
    (SELECT queue, lane, required_capabilities, priority
     FROM {schema.}tasks
     WHERE state IN ('pending', 'failed') AND waits_for IS NULL AND queue = (SELECT queue FROM asked)
     ORDER BY queue, lane, required_capabilities, priority, {due}, id
     LIMIT 1)
    UNION ALL
    SELECT following.*
    FROM lanes AS lane
    CROSS JOIN LATERAL (SELECT
        lane.lane = '' OR (SELECT counts FROM any_name) OR lane.lane IN (SELECT name FROM serving) AS our_lane,
        NOT EXISTS (SELECT FROM fitting)
            OR EXISTS (SELECT FROM fitting WHERE lane.required_capabilities <@ capabilities) AS our_capabilities
    ) AS serves
    CROSS JOIN LATERAL (
        SELECT queue, lane, required_capabilities, priority
        FROM {schema.}tasks
        WHERE state IN ('pending', 'failed') AND waits_for IS NULL
          AND queue = lane.queue
          AND (lane, required_capabilities, priority) > (
              CASE WHEN our_lane THEN lane.lane ELSE lane.lane || E'\x01' END,
              CASE WHEN NOT our_lane THEN '{}'
                   WHEN our_capabilities THEN lane.required_capabilities
                   ELSE lane.required_capabilities || ''::text END,
              CASE WHEN our_lane AND our_capabilities THEN lane.priority ELSE -11 END)
        ORDER BY queue, lane, required_capabilities, priority, {due}, id
        LIMIT 1
    ) AS following
),
-- Of each lane, what stands higher by now, and what stands as high and was due earlier: two borders in due time.
borders AS (
    SELECT lanes.*, asked.id AS asked_id, asked.due AS asked_due,
           CASE WHEN lanes.priority > effective_priority THEN now()
                WHEN lanes.priority < 0 AND effective_priority < 0 THEN medium_since
                WHEN effective_priority < 100 THEN high_since
                ELSE '-infinity' END AS higher_until,
           CASE WHEN lanes.priority >= effective_priority THEN now()
                WHEN lanes.priority < 0 AND effective_priority <= 0 THEN medium_since
                ELSE high_since END AS as_high_until
    FROM lanes
    CROSS JOIN asked
    CROSS JOIN LATERAL (SELECT
        now() - make_interval(secs => high_after + CASE WHEN lanes.priority < 0 THEN medium_after ELSE 0 END)
            AS high_since,
        now() - make_interval(secs => medium_after) AS medium_since
    ) AS raised
    WHERE (lanes.lane = '' OR (SELECT counts FROM any_name) OR lanes.lane IN (SELECT name FROM serving))
      AND (NOT EXISTS (SELECT FROM fitting)
           OR EXISTS (SELECT FROM fitting WHERE lanes.required_capabilities <@ capabilities))
),
-- In the index's order, and up to a number unknown to the planner: so it plans to stop, not to read all and sort.
ahead AS (
    SELECT 1
    FROM borders AS lane
    CROSS JOIN LATERAL (
        SELECT task.name
        FROM {schema.}tasks AS task
        WHERE {include in_lane}
          AND {due} <= greatest(higher_until, least(as_high_until, asked_due))
          AND ({due} <= higher_until OR ({due}, task.id) < (asked_due, asked_id))
        ORDER BY {due}, task.id
        LIMIT (SELECT 2 * most FROM asked)
    ) AS counted
    WHERE ((SELECT counts FROM any_name) OR counted.name IN (SELECT name FROM serving))
      AND counted.name <> ALL (ARRAY(SELECT value FROM {schema.}pauses WHERE kind IN ('name', 'open_breaker')))
    LIMIT (SELECT most FROM asked)
),
-- Ids are in the order of creation. What ended lately is among the newest (it didn't have to wait), or right before
-- the head of this task's lane (it waited in the same line).
lately AS (
    (SELECT id, queue, state, started_at, completed_at FROM {schema.}tasks ORDER BY id DESC LIMIT %(sample)s)
    UNION
    (SELECT id, queue, state, started_at, completed_at
     FROM {schema.}tasks
     WHERE id < (SELECT head.id
                 FROM asked AS lane
                 CROSS JOIN LATERAL (
                     SELECT task.id
                     FROM {schema.}tasks AS task
                     WHERE {include in_lane}
                     ORDER BY {due}, task.id
                     LIMIT 1
                 ) AS head)
     ORDER BY id DESC
     LIMIT %(sample)s)
)
SELECT (SELECT count(*) FROM ahead),
       (SELECT count(*) FROM fitting),
       COALESCE((SELECT sum(capacity) FROM fitting), 0),
       -- From the claim until the result is durable: as long as a slot is taken.
       (SELECT avg(extract(epoch FROM completed_at - started_at))::float8
        FROM lately
        WHERE lately.queue = asked.queue
          AND state IN ('completed', 'dead_letter')
          AND completed_at > now() - interval '1 hour'
          AND started_at IS NOT NULL)
FROM asked
