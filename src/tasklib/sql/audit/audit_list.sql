-- One page, newest first; the last id of a page is where the next one starts.
SELECT id, at, actor, action, target, details
FROM {schema.}audit
WHERE (%(action)s::text IS NULL OR action = %(action)s::text)
  AND (%(actor)s::text IS NULL OR actor = %(actor)s::text)
  AND (%(target)s::text IS NULL OR target = %(target)s::text)
  AND (%(before)s::bigint IS NULL OR CASE
      WHEN %(before_at)s::timestamptz IS NULL THEN id < %(before)s::bigint
      -- A page that goes over several shards, whose numbers don't compare.
      ELSE (at, id) < (%(before_at)s::timestamptz, %(before)s::bigint)
  END)
ORDER BY id DESC
LIMIT %(limit)s
