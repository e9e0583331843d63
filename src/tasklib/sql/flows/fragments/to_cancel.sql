-- What the cancel of its flow has to end or to request to stop.
(task.state IN ('pending', 'failed') OR (task.state = 'running' AND task.cancel_requested_at IS NULL))
