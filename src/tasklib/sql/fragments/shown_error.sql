-- The error as the caller is shown it: what is masked can't be searched for piece by piece.
CASE WHEN %(secrets)s::text IS NULL THEN task.error
     ELSE regexp_replace(task.error, %(secrets)s::text, '\1\2***', 'gi') END
