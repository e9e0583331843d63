-- The same for lanes that the worker has just claimed from: it resumes behind the rows it took, and doesn't read the
-- entries of rows it took before, which stay in the index while any snapshot might see them. Rows that appear there
-- later (a late commit, a released task) and other lanes are found by the next claim that scans all lanes.
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
        WHERE task.state IN ('pending', 'failed') AND task.waits_for IS NULL
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
