-- With which key what is sent to a task has to be sealed.
SELECT name, key_id FROM {schema.}tasks WHERE id = %(id)s::text::uuid AND {include owned}
