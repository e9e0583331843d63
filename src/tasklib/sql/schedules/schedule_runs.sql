-- The last runs of some schedules, for each the newest slot first.
SELECT run.*
FROM unnest(%(names)s::text[]) AS wanted (name)
CROSS JOIN LATERAL (
    SELECT schedule, id::text, slot, state, created_at, started_at, completed_at
    FROM {schema.}tasks
    WHERE schedule = wanted.name AND slot IS NOT NULL
    ORDER BY slot DESC
    LIMIT %(limit)s) AS run
