WITH {include dead_letter_batch}
DELETE FROM {schema.}tasks AS task
USING batch
WHERE task.id = batch.id
RETURNING task.id::text, batch.completed_at
