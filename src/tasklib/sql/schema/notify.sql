-- With a table, though none of its columns: in a cluster, a notification is sent by the server that runs the statement,
-- and that has to be the one on which the triggers of our tables send theirs.
SELECT pg_notify(%(channel)s::text, %(message)s::text) FROM {schema.}tasklib_version LIMIT 1
