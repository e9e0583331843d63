-- Lease up to `limit` due tasks of the lanes this worker serves: by effective priority, then first come first served.
-- In lanes that the worker has lately claimed from it resumes behind the rows it took, and doesn't read the entries of
-- rows it took before, which stay in the index while any snapshot might see them. Rows that appear there later (a late
-- commit, a released task) are found by the next claim from the beginning.
WITH RECURSIVE known AS MATERIALIZED (
    SELECT queue COLLATE "C" AS queue, lane COLLATE "C" AS lane,
           capabilities::text[] COLLATE "C" AS required_capabilities, priority, after_due, after_id
    FROM unnest(%(known_queues)s::text[], %(known_lanes)s::text[], %(known_capabilities)s::text[],
                %(known_priorities)s::int[], %(after_due)s::timestamptz[], %(after_id)s::uuid[])
             AS place (queue, lane, capabilities, priority, after_due, after_id)
),
{include lanes},
heads AS (
    -- From the beginning of the lane.
    SELECT *, '-infinity'::timestamptz AS after_due, '00000000-0000-0000-0000-000000000000'::uuid AS after_id FROM ours
    UNION ALL
    SELECT lane.queue, lane.lane, lane.required_capabilities, lane.priority, head.due, after_due, after_id
    FROM known AS lane
    CROSS JOIN LATERAL (
        SELECT {due} AS due
        FROM {schema.}tasks AS task
        WHERE {include in_lane}
          AND ({due}, id) > (after_due, after_id)
        ORDER BY {due}, id
        LIMIT 1
    ) AS head
    WHERE lane.queue <> ALL ((SELECT queues FROM paused)::text[])
      AND lane.lane <> ALL ((SELECT names FROM paused)::text[])
),
{include take}
