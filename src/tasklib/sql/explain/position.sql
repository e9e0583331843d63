-- How many due tasks of its queue go before a due task that is not paused, and how long a slot is taken by one of them.
-- Everything here is bounded: a look per lane, a count that ends at `most`, and samples of `sample` rows.
WITH RECURSIVE asked AS (
    SELECT id, queue, name, required_capabilities, priority, {due} AS due, medium_after, high_after,
           %(most)s::bigint AS most,
           {schema.}tasklib_effective_priority(priority, {due}, medium_after, high_after, now()) AS effective_priority
    FROM {schema.}tasks
    CROSS JOIN {include thresholds}
    WHERE id = %(id)s::text::uuid AND state IN ('pending', 'failed') AND waits_for IS NULL AND {due} <= now() AND {include owned}
      AND NOT EXISTS (
          SELECT FROM {schema.}pauses WHERE (kind, value) IN (('queue', tasks.queue), ('name', tasks.name)))
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
-- The lanes of its queue, from head to head as in lanes.sql. If no worker matches, all lanes count.
lanes AS (
    (SELECT queue, name, required_capabilities, priority
     FROM {schema.}tasks
     WHERE state IN ('pending', 'failed') AND waits_for IS NULL AND queue = (SELECT queue FROM asked)
     ORDER BY queue, name, required_capabilities, priority, {due}, id
     LIMIT 1)
    UNION ALL
    SELECT following.*
    FROM lanes AS lane
    CROSS JOIN LATERAL (SELECT
        NOT EXISTS (SELECT FROM fitting) OR EXISTS (SELECT FROM fitting WHERE lane.name = ANY (COALESCE(names, ARRAY[lane.name]))) AS our_name,
        NOT EXISTS (SELECT FROM fitting) OR EXISTS (
            SELECT FROM fitting
            WHERE lane.name = ANY (COALESCE(names, ARRAY[lane.name])) AND lane.required_capabilities <@ capabilities) AS our_capabilities
    ) AS serves
    CROSS JOIN LATERAL (
        SELECT queue, name, required_capabilities, priority
        FROM {schema.}tasks
        WHERE state IN ('pending', 'failed') AND waits_for IS NULL
          AND queue = lane.queue
          AND (queue, name, required_capabilities, priority) > (
              lane.queue,
              CASE WHEN our_name THEN lane.name ELSE lane.name || E'\x01' END,
              CASE WHEN NOT our_name THEN '{}'
                   WHEN our_capabilities THEN lane.required_capabilities
                   ELSE lane.required_capabilities || ''::text END,
              CASE WHEN our_name AND our_capabilities THEN lane.priority ELSE -11 END)
        ORDER BY queue, name, required_capabilities, priority, {due}, id
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
    WHERE lanes.name <> ALL (ARRAY(SELECT value FROM {schema.}pauses WHERE kind = 'name'))
      AND (NOT EXISTS (SELECT FROM fitting) OR EXISTS (
          SELECT FROM fitting
          WHERE lanes.name = ANY (COALESCE(names, ARRAY[lanes.name])) AND lanes.required_capabilities <@ capabilities))
),
-- In the index's order, and up to a number unknown to the planner: so it plans to stop, not to read all and sort.
ahead AS (
    SELECT 1
    FROM borders
    CROSS JOIN LATERAL (
        SELECT 1
        FROM {schema.}tasks AS task
        WHERE task.state IN ('pending', 'failed') AND task.waits_for IS NULL
          AND task.queue = borders.queue
          AND task.name = borders.name
          AND task.required_capabilities = borders.required_capabilities
          AND task.priority = borders.priority
          AND {due} <= greatest(higher_until, least(as_high_until, asked_due))
          AND ({due} <= higher_until OR ({due}, task.id) < (asked_due, asked_id))
        ORDER BY {due}, task.id
        LIMIT (SELECT most FROM asked)
    ) AS counted
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
                 FROM asked
                 CROSS JOIN LATERAL (
                     SELECT task.id
                     FROM {schema.}tasks AS task
                     WHERE task.state IN ('pending', 'failed') AND task.waits_for IS NULL
                       AND task.queue = asked.queue
                       AND task.name = asked.name
                       AND task.required_capabilities = asked.required_capabilities
                       AND task.priority = asked.priority
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
