-- All that one worker holds, as the claim gave it.
SELECT {include leased}, task.priority, CASE WHEN by_name THEN name END
FROM {schema.}tasks AS task
WHERE state = 'running' AND worker_id = %(worker)s
