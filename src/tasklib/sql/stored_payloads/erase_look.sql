-- How many tasks an erasure would take, and how many it would leave because they are not finished.
SELECT count(*) FILTER (WHERE state IN ('completed', 'cancelled', 'dead_letter') AND NOT kwargs ? '$erased'),
       count(*) FILTER (WHERE state NOT IN ('completed', 'cancelled', 'dead_letter'))
FROM {schema.}tasks AS task
WHERE {include task_filter}
