CASE WHEN %(owner)s::text IS NULL THEN NULL ELSE task.submitted_by END
