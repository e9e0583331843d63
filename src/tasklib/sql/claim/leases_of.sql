-- All that one worker holds, as the claim gave it.
SELECT {include leased}, task.priority, task.lane
FROM {schema.}tasks AS task
WHERE state = 'running' AND worker_id = %(worker)s
