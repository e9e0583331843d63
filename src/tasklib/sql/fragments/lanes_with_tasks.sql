-- Every lane that has something to do, hopped over by the index, one probe each. Its head is its earliest due task.
lanes AS (
    (SELECT queue, name, required_capabilities, priority, {due} AS due
     FROM {schema.}tasks
     WHERE state IN ('pending', 'failed') AND waits_for IS NULL
     ORDER BY queue, name, required_capabilities, priority, {due}, id
     LIMIT 1)
    UNION ALL
    SELECT following.*
    FROM lanes AS lane
    CROSS JOIN LATERAL (
        SELECT queue, name, required_capabilities, priority, {due}
        FROM {schema.}tasks
        WHERE state IN ('pending', 'failed') AND waits_for IS NULL
          AND (queue, name, required_capabilities, priority)
              > (lane.queue, lane.name, lane.required_capabilities, lane.priority)
        ORDER BY queue, name, required_capabilities, priority, {due}, id
        LIMIT 1
    ) AS following
)
