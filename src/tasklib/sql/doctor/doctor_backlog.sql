-- How many due tasks these lanes hold together, counted up to a limit.
SELECT count(*)
FROM (
    SELECT
    FROM unnest(%(queues)s::text[], %(names)s::text[], %(capabilities)s::text[], %(priorities)s::integer[])
        AS lane (queue, name, capabilities, priority)
    CROSS JOIN LATERAL (
        SELECT
        FROM {schema.}tasks AS task
        WHERE task.state IN ('pending', 'failed') AND task.waits_for IS NULL
          AND task.queue = lane.queue AND task.name = lane.name
          AND task.required_capabilities = lane.capabilities::text[] AND task.priority = lane.priority
          AND COALESCE(task.next_retry_at, task.scheduled_at) <= now()
        LIMIT %(most)s
    ) AS due
    LIMIT %(most)s
) AS counted
