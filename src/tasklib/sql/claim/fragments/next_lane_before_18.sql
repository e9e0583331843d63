-- The same as next_lane.sql for servers before PostgreSQL 18, where a scan stops at (queue, lane, ...) < (end_queue, ...)
-- only if the queue alone decides it, and else reads all of the lane at `end`. So the first lane in an earlier queue than
-- `end` is looked for, then in its queue in an earlier lane, and so on. A look at the two rules most of these probes out.
SELECT *
FROM (
    (
        SELECT queue, lane, required_capabilities, priority, {due} AS due
        FROM {schema.}tasks
        WHERE state IN ('pending', 'failed') AND waits_for IS NULL
          AND from_queue < end_queue
          AND (queue, lane, required_capabilities, priority) > (from_queue, from_lane, from_capabilities, from_priority)
          AND queue < end_queue
        ORDER BY queue, lane, required_capabilities, priority, {due}, id
        LIMIT 1
    )
    UNION ALL
    (
        SELECT queue, lane, required_capabilities, priority, {due}
        FROM {schema.}tasks
        WHERE state IN ('pending', 'failed') AND waits_for IS NULL
          AND end_lane > ''
          AND queue = end_queue AND lane < end_lane
          AND (lane, required_capabilities, priority) > (
              CASE WHEN from_queue = end_queue THEN from_lane ELSE '' END,
              CASE WHEN from_queue = end_queue THEN from_capabilities ELSE '{}' END,
              CASE WHEN from_queue = end_queue THEN from_priority ELSE -11 END)
        ORDER BY lane, required_capabilities, priority, {due}, id
        LIMIT 1
    )
    UNION ALL
    (
        SELECT queue, lane, required_capabilities, priority, {due}
        FROM {schema.}tasks
        WHERE state IN ('pending', 'failed') AND waits_for IS NULL
          AND end_capabilities > '{}'
          AND queue = end_queue AND lane = end_lane AND required_capabilities < end_capabilities
          AND (required_capabilities, priority) > (
              CASE WHEN (from_queue, from_lane) = (end_queue, end_lane) THEN from_capabilities ELSE '{}' END,
              CASE WHEN (from_queue, from_lane) = (end_queue, end_lane) THEN from_priority ELSE -11 END)
        ORDER BY required_capabilities, priority, {due}, id
        LIMIT 1
    )
    UNION ALL
    (
        SELECT queue, lane, required_capabilities, priority, {due}
        FROM {schema.}tasks
        WHERE state IN ('pending', 'failed') AND waits_for IS NULL
          AND end_priority > -11
          AND queue = end_queue AND lane = end_lane AND required_capabilities = end_capabilities
          AND priority < end_priority
          AND priority > CASE WHEN (from_queue, from_lane, from_capabilities) = (end_queue, end_lane, end_capabilities)
                              THEN from_priority ELSE -11 END
        ORDER BY priority, {due}, id
        LIMIT 1
    )
) AS probe
ORDER BY queue, lane, required_capabilities, priority
LIMIT 1
