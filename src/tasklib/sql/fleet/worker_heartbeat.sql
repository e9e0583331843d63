-- A worker that was declared dead finds no row: its tasks are gone, and it has to begin anew under another id.
UPDATE {schema.}worker_registrations
SET last_heartbeat = now(),
    current_load = COALESCE(%(load)s::int, current_load),
    names = COALESCE(%(names)s::text[], names),
    reported_status =
        CASE %(draining)s::boolean WHEN true THEN 'draining' WHEN false THEN 'active' ELSE reported_status END
WHERE id = %(id)s AND reported_status <> 'dead'
RETURNING drain_requested_at IS NOT NULL
