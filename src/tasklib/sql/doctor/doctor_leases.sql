-- Attempts whose lease expired this long ago and that were not recovered.
SELECT count(*), extract(epoch FROM now() - min(locked_until))::float8
FROM (
    SELECT locked_until
    FROM {schema.}tasks
    WHERE state = 'running' AND locked_until < now() - make_interval(secs => %(grace)s)
    ORDER BY locked_until
    LIMIT %(most)s
) AS ended
