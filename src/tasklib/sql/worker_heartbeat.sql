-- A worker that was declared dead finds no row: its tasks are gone, and it has to begin anew under another id.
UPDATE {schema.}workers
SET last_heartbeat = now(),
    current_load = COALESCE(%(load)s::int, current_load),
    names = COALESCE(%(names)s::text[], names),
    status = CASE %(draining)s::boolean WHEN true THEN 'draining' WHEN false THEN 'active' ELSE status END
WHERE id = %(id)s AND status <> 'dead'
RETURNING drain_requested_at IS NOT NULL
