-- What a search finds among tasks that failed, were cancelled or given up, from their own index, and among those that
-- run. Of each state at most `look` are looked at; the page ends where the first of them was cut. A state is sought as
-- a range of (state, id): were it known to be one, the planner might take the primary key and read past all others.
WITH cut AS (
    SELECT CASE WHEN %(look)s > %(limit)s THEN GREATEST(
        (SELECT task.id FROM {schema.}tasks AS task
         WHERE {include aside_failed}
         ORDER BY task.state DESC, task.id DESC OFFSET %(look)s - 1 LIMIT 1),
        (SELECT task.id FROM {schema.}tasks AS task
         WHERE {include aside_cancelled}
         ORDER BY task.state DESC, task.id DESC OFFSET %(look)s - 1 LIMIT 1),
        (SELECT task.id FROM {schema.}tasks AS task
         WHERE {include aside_dead_letter}
         ORDER BY task.state DESC, task.id DESC OFFSET %(look)s - 1 LIMIT 1)) END AS id
),
found AS (
    SELECT {include search_columns}
    FROM (
        (SELECT * FROM {schema.}tasks AS task
         WHERE {include aside_failed}
         ORDER BY task.state DESC, task.id DESC LIMIT %(look)s)
        UNION ALL
        (SELECT * FROM {schema.}tasks AS task
         WHERE {include aside_cancelled}
         ORDER BY task.state DESC, task.id DESC LIMIT %(look)s)
        UNION ALL
        (SELECT * FROM {schema.}tasks AS task
         WHERE {include aside_dead_letter}
         ORDER BY task.state DESC, task.id DESC LIMIT %(look)s)
        UNION ALL
        -- No more than the fleet has slots. Sorted by when their leases end, so that they come from their index.
        (SELECT task.* FROM (
             SELECT task.id FROM (
                 SELECT task.id, task.submitted_by FROM {schema.}tasks AS task
                 WHERE task.state = 'running' AND 'running' = ANY (%(states)s::text[])
                 ORDER BY task.locked_until
                 LIMIT %(most_running)s) AS task
             WHERE {include search_range}
             ORDER BY task.id DESC
             LIMIT CASE WHEN %(look)s > %(limit)s THEN %(most_running)s ELSE %(look)s END) AS running
         JOIN {schema.}tasks AS task ON task.id = running.id)
    ) AS task
    WHERE {include search_matches} AND task.id >= COALESCE((SELECT id FROM cut), task.id)
    ORDER BY task.id DESC
    LIMIT %(limit)s
)
SELECT CASE WHEN (SELECT count(*) FROM found) < %(limit)s THEN (SELECT id FROM cut) END, found.*
FROM (SELECT) AS one
LEFT JOIN found ON true
ORDER BY found.id DESC
