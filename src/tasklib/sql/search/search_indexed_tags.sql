-- The same of tags, by the index tasks_search_tags.
WITH holding AS MATERIALIZED (
    SELECT * FROM {schema.}tasks AS task
    WHERE task.tags @> ANY (%(holding)s::text[]::jsonb[])
    LIMIT %(look)s
),
{include search_held}
