-- What has been running for the longest, of a bounded number.
SELECT id::text, name, queue, worker_id, extract(epoch FROM now() - started_at)::float8, retry_count + crash_count + 1,
       all_of_them
FROM (
    SELECT id, name, queue, worker_id, started_at, retry_count, crash_count, count(*) OVER () AS all_of_them
    FROM {schema.}tasks
    WHERE state = 'running'
    LIMIT %(most)s
) AS running
ORDER BY started_at, id
LIMIT %(limit)s
