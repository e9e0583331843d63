-- The page before: search_flows.sql the other way round, from an id towards the newer ones.
WITH looked AS (
    SELECT found.id
    FROM (SELECT DISTINCT unnest(%(flows)s::text[]::uuid[]) AS id) AS wanted
    CROSS JOIN LATERAL (
        (SELECT task.id
         FROM {schema.}tasks AS near
         CROSS JOIN LATERAL (SELECT near.id, near.node, near.submitted_by) AS task
         WHERE {include near_flow}
           AND {include search_nodes}
         ORDER BY near.id
         LIMIT %(look)s)
        UNION ALL
        SELECT task.id
        FROM {schema.}tasks AS far
        CROSS JOIN LATERAL (SELECT far.id, far.node, far.submitted_by) AS task
        WHERE {include far_from_flow}
          AND {include search_nodes}
    ) AS found
    ORDER BY found.id
    LIMIT %(look)s
),
found AS (
    SELECT {include search_columns}
    FROM {schema.}tasks AS task
    WHERE task.id = ANY (ARRAY(SELECT id FROM looked))
      AND {include search_matches}
    ORDER BY task.id
    LIMIT %(limit)s
)
SELECT CASE WHEN (SELECT count(*) FROM found) < %(limit)s AND (SELECT count(*) FROM looked) = %(look)s
            THEN (SELECT id FROM looked ORDER BY id DESC LIMIT 1) END,
       found.*
FROM (SELECT) AS one
LEFT JOIN found ON true
ORDER BY found.id DESC
