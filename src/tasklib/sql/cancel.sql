-- What waits is cancelled at once; what runs is asked to stop, and its worker is told. Finished tasks don't come back.
UPDATE {schema.}tasks AS task
SET state = CASE WHEN state = 'running' THEN 'running' ELSE 'cancelled' END,
    completed_at = CASE WHEN state = 'running' THEN NULL ELSE now() END,
    next_retry_at = CASE WHEN state = 'running' THEN next_retry_at END,
    cancel_requested_at = COALESCE(cancel_requested_at, now())
WHERE id = %(id)s::text::uuid AND state IN ('pending', 'failed', 'running')
RETURNING state, CASE WHEN state = 'running' THEN {include wake} END
