-- These are the same in a newer deploy, as it read them: an older one must not change them any more.
UPDATE {schema.}schedules AS schedule
SET deployed_at = %(deployed_at)s::timestamptz
FROM unnest(%(names)s::text[], %(revisions)s::bigint[]) AS seen (name, revision)
WHERE schedule.name = seen.name
  AND schedule.revision = seen.revision
  AND schedule.source = 'code'
  AND schedule.deployed_at < %(deployed_at)s::timestamptz
RETURNING schedule.name
