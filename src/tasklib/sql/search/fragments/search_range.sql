(%(below)s::text IS NULL OR task.id < %(below)s::text::uuid)
          AND (%(above)s::text IS NULL OR task.id > %(above)s::text::uuid)
          AND (%(owner)s::text IS NULL OR task.submitted_by BETWEEN %(owner)s::text AND %(owner)s::text)
