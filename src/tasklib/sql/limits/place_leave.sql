-- A block of a running task gives its place back; a trigger wakes workers for it. Of an attempt that is over there is
-- nothing to give back: its places count no more.
DELETE FROM {schema.}places AS place
USING {schema.}tasks AS task
WHERE place.task = %(id)s::text::uuid AND place.token = %(token)s::bigint AND place.block = %(block)s::int
  AND task.id = %(id)s::text::uuid
  AND task.lease_token = %(token)s::bigint
  AND task.worker_id = %(worker)s
