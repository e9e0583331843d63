-- How long ago the oldest finished task that is kept has ended, among the first rows in the order of creation.
SELECT extract(epoch FROM now() - min(completed_at))::float8
FROM (SELECT completed_at FROM {schema.}tasks ORDER BY id LIMIT %(most)s) AS oldest
