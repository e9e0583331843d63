-- The newest tasks of some flows that match: search_newest.sql, one flow after the other: of a flow with a million tasks only
-- `look` rows are read.
WITH looked AS (
    SELECT found.id
    FROM (SELECT DISTINCT unnest(%(flows)s::text[]::uuid[]) AS id) AS wanted
    CROSS JOIN LATERAL (
        (SELECT task.id
         FROM {schema.}tasks AS near
         CROSS JOIN LATERAL (SELECT near.id, near.node, near.submitted_by) AS task
         WHERE {include near_flow}
           AND {include search_nodes}
         ORDER BY near.id DESC
         LIMIT %(look)s)
        UNION ALL
        SELECT task.id
        FROM {schema.}tasks AS far
        CROSS JOIN LATERAL (SELECT far.id, far.node, far.submitted_by) AS task
        WHERE {include far_from_flow}
          AND {include search_nodes}
    ) AS found
    ORDER BY found.id DESC
    LIMIT %(look)s
),
found AS (
    SELECT {include search_columns}
    FROM {schema.}tasks AS task
    WHERE task.id = ANY (ARRAY(SELECT id FROM looked))
      AND {include search_matches}
    ORDER BY task.id DESC
    LIMIT %(limit)s
)
SELECT CASE WHEN (SELECT count(*) FROM found) < %(limit)s AND (SELECT count(*) FROM looked) = %(look)s
            THEN (SELECT id FROM looked ORDER BY id LIMIT 1) END,
       found.*
FROM (SELECT) AS one
LEFT JOIN found ON true
ORDER BY found.id DESC
