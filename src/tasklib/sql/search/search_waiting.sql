-- What a search finds among waiting tasks that may be older than anything search_newest.sql has looked at: those in the
-- lanes and those at gates. In the order of their indexes, so that they are used; if there are more than `look`, which
-- of them are seen is left to the index.
WITH found AS (
    SELECT {include search_columns}
    FROM (
        (SELECT * FROM {schema.}tasks AS task
         WHERE task.state IN ('pending', 'failed') AND task.waits_for IS NULL
         ORDER BY task.queue, task.lane, task.required_capabilities, task.priority, {due}, task.id
         LIMIT %(look)s)
        UNION ALL
        (SELECT * FROM {schema.}tasks AS task
         WHERE task.state IN ('pending', 'failed') AND task.waits_for IS NOT NULL
         ORDER BY task.waits_for, task.id
         LIMIT %(look)s)
    ) AS task
    WHERE {include search_range}
          AND {include search_matches}
    ORDER BY task.id DESC
    LIMIT %(limit)s
)
SELECT (SELECT count(*) FROM (
           SELECT FROM {schema.}tasks AS task
           WHERE task.state IN ('pending', 'failed') AND task.waits_for IS NULL
           ORDER BY task.queue, task.lane, task.required_capabilities, task.priority, {due}, task.id
           LIMIT %(look)s) AS looked) >= %(look)s
       OR (SELECT count(*) FROM (
           SELECT FROM {schema.}tasks AS task
           WHERE task.state IN ('pending', 'failed') AND task.waits_for IS NOT NULL
           ORDER BY task.waits_for, task.id
           LIMIT %(look)s) AS looked) >= %(look)s,
       found.*
FROM (SELECT) AS one
LEFT JOIN found ON true
ORDER BY found.id DESC
