-- The page before: search_newest.sql the other way round, from an id towards the newer ones.
WITH found AS (
    SELECT {include search_columns}
    FROM (
        SELECT * FROM {schema.}tasks AS task
        WHERE {include search_range}
        ORDER BY {include by_owner}, task.id
        LIMIT %(look)s
    ) AS task
    WHERE {include search_matches}
    ORDER BY task.id
    LIMIT %(limit)s
)
SELECT CASE WHEN (SELECT count(*) FROM found) < %(limit)s THEN (
           SELECT task.id FROM {schema.}tasks AS task
           WHERE {include search_range}
           ORDER BY {include by_owner}, task.id
           OFFSET %(look)s - 1
           LIMIT 1) END,
       found.*
FROM (SELECT) AS one
LEFT JOIN found ON true
ORDER BY found.id DESC
