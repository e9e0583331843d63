-- These are the same in a newer deploy: an older one must not change them any more.
UPDATE {schema.}schedules
SET deployed_at = %(deployed_at)s::timestamptz
WHERE name = ANY(%(names)s::text[]) AND source = 'code' AND deployed_at < %(deployed_at)s::timestamptz
