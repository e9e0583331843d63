-- Tasks that hold places in a limit, those that have run longest first.
SELECT holder.id::text, holder.name, holder.queue, place.key, holder.state, holder.started_at, holder.worker_id
FROM {schema.}places AS place
JOIN {schema.}tasks AS holder ON holder.id = place.task
WHERE place.limit_name = %(name)s
  AND {include holding}
ORDER BY holder.started_at NULLS FIRST, holder.id
LIMIT %(most)s
