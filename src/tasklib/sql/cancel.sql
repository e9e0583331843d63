-- What waits is cancelled at once; what runs is asked to stop, and its worker is told. Finished tasks don't come back.
UPDATE {schema.}tasks AS task
SET {include cancelled}
WHERE id = %(id)s::text::uuid AND state IN ('pending', 'failed', 'running')
RETURNING state, CASE WHEN state = 'running' THEN {include wake} END
