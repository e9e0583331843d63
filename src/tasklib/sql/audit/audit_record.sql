-- What changes no other table and is recorded all the same: that secrets were shown, or somebody has logged in.
INSERT INTO {schema.}audit (actor, action, target, details)
VALUES (%(actor)s::text, %(action)s::text, %(target)s::text, %(details)s::text::jsonb)
