-- What is paused, and what has limits or breakers and is claimed by claim_limited.sql; read once: a subquery wherever it is compared would be planned and run as many times.
paused AS MATERIALIZED (
    SELECT COALESCE(array_agg(value) FILTER (WHERE kind IN ('queue', 'limited_queue')), '{}') AS queues,
           COALESCE(array_agg(value) FILTER (
               WHERE kind IN ('name', 'limited_name', 'open_breaker', 'probing_breaker')), '{}') AS names
    FROM {schema.}pauses
)
