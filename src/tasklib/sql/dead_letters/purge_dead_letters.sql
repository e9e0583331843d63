WITH {include dead_letter_batch},
changed AS (
    DELETE FROM {schema.}tasks AS task
    USING batch
    WHERE task.id = ANY (ARRAY[batch.id])
    RETURNING task.id::text, batch.completed_at
),
{include audited_batch}
SELECT * FROM changed
