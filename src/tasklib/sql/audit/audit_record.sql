-- Records without a change of another table: revealed secrets, and logins.
INSERT INTO {schema.}audit (actor, action, target, details)
VALUES (%(actor)s::text, %(action)s::text, %(target)s::text, %(details)s::text::jsonb)
