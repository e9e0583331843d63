-- Every lane that has something to do, hopped over by the index, one probe each. Its head is its earliest due task. A
-- lane holds tasks of all names; where `lane` is not empty, of that name only.
lanes AS (
    (SELECT queue, lane, required_capabilities, priority, {due} AS due
     FROM {schema.}tasks
     WHERE state IN ('pending', 'failed') AND waits_for IS NULL
     ORDER BY queue, lane, required_capabilities, priority, {due}, id
     LIMIT 1)
    UNION ALL
    SELECT following.*
    FROM lanes AS lane
    CROSS JOIN LATERAL (
        SELECT queue, lane, required_capabilities, priority, {due}
        FROM {schema.}tasks
        WHERE state IN ('pending', 'failed') AND waits_for IS NULL
          AND (queue, lane, required_capabilities, priority)
              > (lane.queue, lane.lane, lane.required_capabilities, lane.priority)
        ORDER BY queue, lane, required_capabilities, priority, {due}, id
        LIMIT 1
    ) AS following
)
