-- How many due tasks of these names these lanes hold together, counted up to a limit, of so many that are looked at.
SELECT count(*)
FROM (
    SELECT
    FROM (
        SELECT queue COLLATE "C" AS queue, lane COLLATE "C" AS lane, capabilities::text[] COLLATE "C" AS required_capabilities,
               priority, array_agg(name) AS names
        FROM unnest(%(queues)s::text[], %(lanes)s::text[], %(names)s::text[], %(capabilities)s::text[],
                    %(priorities)s::integer[]) AS place (queue, lane, name, capabilities, priority)
        GROUP BY 1, 2, 3, 4
    ) AS lane
    CROSS JOIN LATERAL (
        SELECT
        FROM (
            SELECT name
            FROM {schema.}tasks AS task
            WHERE {include in_lane}
              AND {due} <= now()
            ORDER BY {due}, id
            LIMIT %(look)s
        ) AS task
        WHERE name = ANY (lane.names)
        LIMIT %(most)s
    ) AS due
    LIMIT %(most)s
) AS counted
