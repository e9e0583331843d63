-- The same for lanes that the worker has just claimed from: it goes on behind what it took there, and doesn't look at
-- what it took before, which stays in the index for as long as anybody's snapshot might see it. What may stand there
-- nevertheless (a late commit, a task given back) and other lanes are found by the next claim from the beginning.
WITH heads AS (
    SELECT lane.queue, lane.name, lane.required_capabilities, lane.priority, head.due, after_due, after_id
    FROM unnest(%(queues)s::text[], %(names)s::text[], %(capabilities)s::text[], %(priorities)s::int[],
                %(after_due)s::timestamptz[], %(after_id)s::uuid[])
             AS place (queue, name, capabilities, priority, after_due, after_id)
    CROSS JOIN LATERAL (SELECT
        place.queue COLLATE "C" AS queue,
        place.name COLLATE "C" AS name,
        place.capabilities::text[] COLLATE "C" AS required_capabilities,
        place.priority
    ) AS lane
    CROSS JOIN LATERAL (
        SELECT {due} AS due
        FROM {schema.}tasks AS task
        WHERE task.state IN ('pending', 'failed')
          AND task.queue = lane.queue
          AND task.name = lane.name
          AND task.required_capabilities = lane.required_capabilities
          AND task.priority = lane.priority
          AND ({due}, id) > (after_due, after_id)
        ORDER BY {due}, id
        LIMIT 1
    ) AS head
    WHERE lane.queue <> ALL (ARRAY(SELECT value FROM {schema.}pauses WHERE kind = 'queue'))
      AND lane.name <> ALL (ARRAY(SELECT value FROM {schema.}pauses WHERE kind = 'name'))
),
{include take}
