-- The newest tasks that match, and where the scan ended before the page was full: null if no task is left. At most
-- `look` tasks are read, whatever the search is for. The tasks of one owner are also sorted by owner, so that the scan
-- uses their index instead of reading the tasks of all owners.
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
