-- The limits that a task function is declared with, by name.
SELECT DISTINCT used ->> 'limit'
FROM {schema.}limited_names
CROSS JOIN LATERAL jsonb_array_elements(uses) AS used
WHERE name = %(name)s AND jsonb_typeof(used) = 'object' AND used ->> 'limit' IS NOT NULL
ORDER BY 1
