-- What a search finds among the newest tasks, and where looking ended before the page was full: null if nothing is
-- left. At most `look` tasks are looked at, whatever is sought. Somebody's own are sorted by whose they are too, so
-- that they come from their index and not from among everybody's.
WITH found AS (
    SELECT {include search_columns}
    FROM (
        SELECT * FROM {schema.}tasks AS task
        WHERE {include search_range}
        ORDER BY {include by_owner} DESC, task.id DESC
        LIMIT %(look)s
    ) AS task
    WHERE {include search_matches}
    ORDER BY task.id DESC
    LIMIT %(limit)s
)
SELECT CASE WHEN (SELECT count(*) FROM found) < %(limit)s THEN (
           SELECT task.id FROM {schema.}tasks AS task
           WHERE {include search_range}
           ORDER BY {include by_owner} DESC, task.id DESC
           OFFSET %(look)s - 1
           LIMIT 1) END,
       found.*
FROM (SELECT) AS one
LEFT JOIN found ON true
ORDER BY found.id DESC
