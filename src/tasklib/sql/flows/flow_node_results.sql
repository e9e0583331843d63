-- One page of what the tasks of some nodes returned, in the order of submission: along the primary key, or node by node
-- along the index of flows, and only what a page takes of each. Otherwise every page would read all that follow it.
WITH wanted AS (SELECT %(flow)s::text::uuid AS id)
SELECT page.id::text, page.state, page.result, page.error, page.sealed_name
FROM wanted
CROSS JOIN LATERAL (
    (SELECT near.id, near.state, near.result,
            CASE WHEN near.key_id IS NULL THEN right(near.error, 2000) ELSE near.error END AS error,
            CASE WHEN near.key_id IS NOT NULL THEN near.name END AS sealed_name
     FROM {schema.}tasks AS near
     WHERE {include near_flow}
       AND near.node = ANY (%(nodes)s::text::text[])
       AND (near.state = 'completed' OR (%(settled)s::bool AND near.state IN ('cancelled', 'dead_letter')))
       AND near.id > COALESCE(%(after)s::text::uuid, '00000000-0000-0000-0000-000000000000')
     ORDER BY near.id
     LIMIT %(limit)s::int)
    UNION ALL
    SELECT node_page.*
    FROM (SELECT DISTINCT unnest(%(nodes)s::text::text[]) AS node) AS reported
    CROSS JOIN LATERAL (
        SELECT far.id, far.state, far.result,
            CASE WHEN far.key_id IS NULL THEN right(far.error, 2000) ELSE far.error END AS error,
            CASE WHEN far.key_id IS NOT NULL THEN far.name END AS sealed_name
        FROM {schema.}tasks AS far
        WHERE {include far_from_flow}
          AND far.node = reported.node
          AND (far.state = 'completed' OR (%(settled)s::bool AND far.state IN ('cancelled', 'dead_letter')))
          AND far.id > COALESCE(%(after)s::text::uuid, '00000000-0000-0000-0000-000000000000')
        ORDER BY far.flow, far.node, far.id
        LIMIT %(limit)s::int
    ) AS node_page
) AS page
ORDER BY page.id
LIMIT %(limit)s::int
