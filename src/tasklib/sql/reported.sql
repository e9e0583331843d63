-- What the server has to know of tasks that are reported to it, and that it hasn't handed out itself.
SELECT id::text, retry_count, name, queue, priority FROM {schema.}tasks WHERE id = ANY (%(ids)s::uuid[])
