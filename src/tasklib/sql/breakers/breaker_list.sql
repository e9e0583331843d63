SELECT name, state, since, until, opened, failures, at_least, within, pause, probes, source, declared, changed_at,
       seen_attempts, seen_failures, passed, cardinality(probe_ids)
FROM {schema.}breakers
WHERE failures IS NOT NULL OR declared IS NOT NULL
ORDER BY name
