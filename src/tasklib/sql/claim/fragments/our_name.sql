CASE WHEN %(names)s::text[] IS NULL THEN true
                WHEN cardinality(%(names)s::text[]) <= 20 THEN task.name = ANY (%(names)s::text[])
                -- Many names are hashed, once per statement.
                ELSE task.name IN (SELECT unnest(%(names)s::text[])) END
      AND task.name <> ALL ((SELECT names FROM paused)::text[])
