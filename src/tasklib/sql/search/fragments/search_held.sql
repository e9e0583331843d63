found AS (
    SELECT {include search_columns}
    FROM holding AS task
    WHERE {include search_range} AND {include search_matches}
    ORDER BY task.id DESC
    LIMIT %(limit)s
)
SELECT (SELECT count(*) FROM holding) >= %(look)s, found.*
FROM (SELECT) AS one
LEFT JOIN found ON true
ORDER BY found.id DESC
