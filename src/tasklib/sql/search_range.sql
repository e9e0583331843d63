(%(below)s::text IS NULL OR task.id < %(below)s::text::uuid)
          AND (%(above)s::text IS NULL OR task.id > %(above)s::text::uuid)
          AND {include owned}
