-- Limits that have been full for so long, by key: since when no place was given, and the task that holds one longest.
SELECT bound.name, held.key, held.running, held.seconds, held.holder::text
FROM {schema.}limits AS bound
CROSS JOIN LATERAL (
    SELECT place.key, count(*) AS running, (array_agg(holder.id ORDER BY holder.started_at, holder.id))[1] AS holder,
           extract(epoch FROM now() - max(holder.started_at))::float8 AS seconds
    FROM {schema.}places AS place
    JOIN {schema.}tasks AS holder ON holder.id = place.task
    WHERE place.limit_name = bound.name
      AND {include holding}
    GROUP BY place.key
) AS held
WHERE held.running >= COALESCE(bound.max_running, CASE WHEN bound.serial IS NOT NULL THEN 1 END)
  AND held.seconds > %(seconds)s::float8
ORDER BY held.seconds DESC, bound.name, held.key
LIMIT %(most)s
