-- A flow whose id was made elsewhere: an error if the id is taken. Its gates and tasks follow in the same transaction.
INSERT INTO {schema.}flows (id, name, submitted_by, first_task, finished_at)
VALUES (%(id)s::text::uuid, %(name)s::text, %(submitted_by)s::text, %(first_task)s::text::uuid,
        CASE WHEN %(is_empty)s::bool THEN now() END)
