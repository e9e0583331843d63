-- A lane is (queue, lane, required_capabilities, priority); its head is its earliest due row. `lane` is empty for the
-- lanes that tasks of all names share, else the one name of its tasks. Hop from head to head, one index probe each. Of
-- a queue, a lane's name or a set of capabilities that is paused or that this worker doesn't serve, only the first row
-- is seen: the next probe starts behind all of it. (In the "C" collation, x || E'\x01' is the string right behind x and
-- everything equal to it; an array grown by '' is the array right behind it; no priority is below -10.)
-- Lanes that begin with E'\x01' are behind limits, and are claimed by another statement: all of a queue's are one hop.
-- Lanes of `known` are left out. Their heads are never read: what was claimed there may still be in the index.
{include paused},
gaps AS (
    SELECT queue AS from_queue, lane AS from_lane, required_capabilities AS from_capabilities, priority AS from_priority,
           COALESCE(lead(queue) OVER following, behind_all) AS end_queue,
           COALESCE(lead(lane) OVER following, '') AS end_lane,
           COALESCE(lead(required_capabilities) OVER following, '{}') AS end_capabilities,
           COALESCE(lead(priority) OVER following, -11) AS end_priority
    FROM (
        SELECT queue, lane, required_capabilities, priority FROM known
        UNION ALL
        SELECT '', '', '{}', -11
    ) AS border
    CROSS JOIN LATERAL (
        SELECT repeat(chr(CASE getdatabaseencoding() WHEN 'UTF8' THEN 1114111 ELSE 255 END), 100) AS behind_all
    ) AS last
    WINDOW following AS (ORDER BY queue, lane, required_capabilities, priority)
),
lanes AS (
    SELECT next.*, end_queue, end_lane, end_capabilities, end_priority
    FROM gaps
    CROSS JOIN LATERAL (
        {include next_lane}
    ) AS next
    UNION ALL
    SELECT next.*, end_queue, end_lane, end_capabilities, end_priority
    FROM lanes AS lane
    CROSS JOIN LATERAL (SELECT
        lane.queue = ANY (COALESCE(%(queues)s::text[], ARRAY[lane.queue]))
            AND lane.queue <> ALL ((SELECT queues FROM paused)::text[]) AS our_queue,
        lane.lane = ''
            OR lane.lane >= E'\x02' AND lane.lane = ANY (COALESCE(%(names)s::text[], ARRAY[lane.lane]))
               AND lane.lane <> ALL ((SELECT names FROM paused)::text[]) AS our_lane,
        lane.required_capabilities <@ %(capabilities)s::text[] AS our_capabilities
        OFFSET 0 -- once for each lane, and not wherever they are used below
    ) AS serves
    CROSS JOIN LATERAL (SELECT
        CASE WHEN our_queue THEN lane.queue ELSE lane.queue || E'\x01' END AS from_queue,
        CASE WHEN NOT our_queue THEN '' WHEN our_lane THEN lane.lane
             WHEN lane.lane < E'\x02' THEN E'\x02' ELSE lane.lane || E'\x01' END AS from_lane,
        CASE WHEN NOT (our_queue AND our_lane) THEN '{}'
             WHEN our_capabilities THEN lane.required_capabilities
             ELSE lane.required_capabilities || ''::text END AS from_capabilities,
        CASE WHEN our_queue AND our_lane AND our_capabilities THEN lane.priority ELSE -11 END AS from_priority
        OFFSET 0
    ) AS behind
    CROSS JOIN LATERAL (
        {include next_lane}
    ) AS next
),
ours AS (
    SELECT queue, lane, required_capabilities, priority, due
    FROM lanes
    WHERE queue = ANY (COALESCE(%(queues)s::text[], ARRAY[queue]))
      AND queue <> ALL ((SELECT queues FROM paused)::text[])
      AND (lane = ''
           OR lane >= E'\x02' AND lane = ANY (COALESCE(%(names)s::text[], ARRAY[lane]))
              AND lane <> ALL ((SELECT names FROM paused)::text[]))
      AND required_capabilities <@ %(capabilities)s::text[]
)
