-- One page by name; the last name of a page is where the next one starts.
SELECT now(), {include schedule_columns}, {include schedule_last_runs}
FROM {schema.}schedules AS schedule
WHERE (%(after)s::text IS NULL OR name > %(after)s::text)
  AND (%(task)s::text IS NULL OR task = %(task)s::text)
  AND (%(source)s::text IS NULL OR source = %(source)s::text)
  AND (%(paused)s::bool IS NULL OR (paused_at IS NOT NULL) = %(paused)s::bool)
  AND (%(retired)s::bool IS NULL OR (retired_at IS NOT NULL) = %(retired)s::bool)
  AND (%(text)s::text IS NULL OR position(lower(%(text)s::text) IN lower(name || ' ' || task)) > 0)
ORDER BY name
LIMIT %(limit)s
