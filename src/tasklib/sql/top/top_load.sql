-- How many tasks each worker holds now, of a bounded number; its own word comes only with its heartbeats.
SELECT worker_id, count(*)
FROM (SELECT worker_id FROM {schema.}tasks WHERE state = 'running' LIMIT %(most)s) AS running
GROUP BY worker_id
