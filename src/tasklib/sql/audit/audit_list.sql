-- One page, newest first; the last id of a page is where the next one starts.
SELECT id, at, actor, action, target, details
FROM {schema.}audit
WHERE (%(action)s::text IS NULL OR action = %(action)s::text)
  AND (%(actor)s::text IS NULL OR actor = %(actor)s::text)
  AND (%(target)s::text IS NULL OR target = %(target)s::text)
  AND (%(before)s::bigint IS NULL OR id < %(before)s::bigint)
ORDER BY id DESC
LIMIT %(limit)s
