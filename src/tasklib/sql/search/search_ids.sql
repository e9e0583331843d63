-- The tasks with these ids, if the rest of the search fits them too.
SELECT NULL, {include search_columns}
FROM {schema.}tasks AS task
WHERE task.id = ANY (%(exact)s::text[]::uuid[]) AND {include search_range}
  AND {include search_matches}
ORDER BY task.id DESC
LIMIT %(limit)s
