-- What one worker runs and has been asked to stop.
SELECT id::text, lease_token
FROM {schema.}tasks
WHERE state = 'running' AND worker_id = %(worker)s AND cancel_requested_at IS NOT NULL
