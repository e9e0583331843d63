-- How many workers of one token live, and how many of it there are with those that died lately.
SELECT count(*) FILTER (WHERE status <> 'dead'), count(*) FROM {schema.}workers WHERE token_id = %(token)s
