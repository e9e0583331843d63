-- Which of these ids no task has. Nothing is returned to an ex-leader, who then deletes nothing.
WITH {include leader}
SELECT given.id::text
FROM unnest(%(ids)s::uuid[]) AS given (id)
WHERE EXISTS (SELECT FROM leader)
  AND NOT EXISTS (SELECT FROM {schema.}tasks AS task WHERE task.id = given.id)
