-- Which of these keys some task here has, by their places: idempotency keys until they expire, merge keys as the index
-- tasks_merging has them.
SELECT asked.place
FROM unnest(%(names)s::text[], %(kinds)s::text[], %(keys)s::text[]) WITH ORDINALITY AS asked (name, kind, key, place)
WHERE EXISTS (
    SELECT FROM {schema.}tasks AS task
    WHERE asked.kind = 'idempotency'
      AND task.name = asked.name AND task.idempotency_key = asked.key
      AND (task.idempotency_expires_at > now()) IS NOT FALSE
) OR EXISTS (
    SELECT FROM {schema.}tasks AS task
    WHERE asked.kind <> 'idempotency'
      AND task.name = asked.name AND task.merge_key = asked.key AND task.merge_while = asked.kind
      AND task.state IN ('pending', 'running', 'failed')
      AND (task.merge_while = 'unfinished' OR task.lease_token = 0)
)
