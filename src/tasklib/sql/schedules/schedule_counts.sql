SELECT count(*) FILTER (WHERE paused_at IS NULL AND retired_at IS NULL AND next_slot IS NOT NULL),
       count(*) FILTER (WHERE paused_at IS NOT NULL AND retired_at IS NULL),
       count(*) FILTER (WHERE retired_at IS NOT NULL),
       count(*) FILTER (WHERE paused_at IS NULL AND retired_at IS NULL
                        AND next_slot < now() - make_interval(secs => %(late)s))
FROM {schema.}schedules
