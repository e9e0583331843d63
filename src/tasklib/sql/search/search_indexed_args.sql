-- The newest tasks with certain arguments, by the index tasks_search_args, which an operator may have created. The first
-- column is true if `look` tasks or more have them: then not all were read, and the caller searches without the index.
WITH holding AS MATERIALIZED (
    SELECT * FROM {schema.}tasks AS task
    WHERE task.kwargs @> ANY (%(holding)s::text[]::jsonb[])
    LIMIT %(look)s
),
{include search_held}
