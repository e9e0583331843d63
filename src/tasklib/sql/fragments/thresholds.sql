(SELECT COALESCE(promote_to_medium_after_seconds, %(medium_after)s::float8) AS medium_after,
                       COALESCE(promote_to_high_after_seconds, %(high_after)s::float8) AS high_after
                FROM {schema.}settings) AS threshold
