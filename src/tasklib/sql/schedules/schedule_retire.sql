-- What was in these modules at an older deploy, and is no longer.
WITH changed AS (
    UPDATE {schema.}schedules
    SET retired_at = now(), revision = revision + 1, changed_at = now()
    WHERE source = 'code' AND retired_at IS NULL AND deployed_at < %(deployed_at)s::timestamptz
      AND (%(modules)s::text[] IS NULL OR module = ANY(%(modules)s::text[]))
      AND name <> ALL(%(names)s::text[])
    RETURNING name
),
{include audited_batch}
SELECT name FROM changed
