-- What an edit has to know of a task besides its columns: its version, whether steps are on record that were made with
-- its arguments, and whether it holds a place that follows from its arguments or its queue.
SELECT {include edit_version},
       EXISTS (SELECT FROM {schema.}steps WHERE steps.task = task.id),
       EXISTS (SELECT FROM {schema.}places WHERE places.task = task.id AND held)
FROM {schema.}tasks AS task
WHERE id = %(id)s::text::uuid AND {include owned}
