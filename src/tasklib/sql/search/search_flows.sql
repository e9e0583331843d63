-- The newest tasks of some flows that match: search_newest.sql within the index of flows. Of a flow with a million tasks
-- the index alone is read, and `look` rows.
WITH looked AS (
    SELECT task.id FROM {schema.}tasks AS task
    WHERE task.flow = ANY (%(flows)s::text[]::uuid[])
      AND (%(nodes)s::text[] IS NULL OR task.node LIKE ANY (%(nodes)s::text[]))
      AND {include search_range}
    ORDER BY task.id DESC
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
