-- A lane is (queue, name, required_capabilities, priority); its head is its earliest due row. Hop from head to head,
-- one index probe each. Of a queue, name or set of capabilities that is paused or that this worker doesn't serve, only
-- the first row is seen: the next probe starts behind all of it. (In the "C" collation, x || E'\x01' is the string
-- right behind x and everything equal to it; an array grown by '' is the array right behind it; no priority is below
-- -10.)
lanes AS (
    (SELECT queue, name, required_capabilities, priority, {due} AS due
     FROM {schema.}tasks
     WHERE state IN ('pending', 'failed') AND waits_for IS NULL
     ORDER BY queue, name, required_capabilities, priority, {due}, id
     LIMIT 1)
    UNION ALL
    SELECT following.*
    FROM lanes AS lane
    CROSS JOIN LATERAL (SELECT
        lane.queue = ANY (COALESCE(%(queues)s::text[], ARRAY[lane.queue]))
            AND lane.queue <> ALL (ARRAY(SELECT value FROM {schema.}pauses WHERE kind = 'queue')) AS our_queue,
        lane.name = ANY (COALESCE(%(names)s::text[], ARRAY[lane.name]))
            AND lane.name <> ALL (ARRAY(SELECT value FROM {schema.}pauses WHERE kind = 'name')) AS our_name,
        lane.required_capabilities <@ %(capabilities)s::text[] AS our_capabilities
    ) AS serves
    CROSS JOIN LATERAL (
        SELECT queue, name, required_capabilities, priority, {due}
        FROM {schema.}tasks
        WHERE state IN ('pending', 'failed') AND waits_for IS NULL
          AND (queue, name, required_capabilities, priority) > (
              CASE WHEN our_queue THEN lane.queue ELSE lane.queue || E'\x01' END,
              CASE WHEN NOT our_queue THEN '' WHEN our_name THEN lane.name ELSE lane.name || E'\x01' END,
              CASE WHEN NOT (our_queue AND our_name) THEN '{}'
                   WHEN our_capabilities THEN lane.required_capabilities
                   ELSE lane.required_capabilities || ''::text END,
              CASE WHEN our_queue AND our_name AND our_capabilities THEN lane.priority ELSE -11 END)
        ORDER BY queue, name, required_capabilities, priority, {due}, id
        LIMIT 1
    ) AS following
),
ours AS (
    SELECT * FROM lanes
    WHERE queue = ANY (COALESCE(%(queues)s::text[], ARRAY[queue]))
      AND queue <> ALL (ARRAY(SELECT value FROM {schema.}pauses WHERE kind = 'queue'))
      AND name = ANY (COALESCE(%(names)s::text[], ARRAY[name]))
      AND name <> ALL (ARRAY(SELECT value FROM {schema.}pauses WHERE kind = 'name'))
      AND required_capabilities <@ %(capabilities)s::text[]
)
