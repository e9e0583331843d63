-- The leader's counts of the last hours for some queues, or names: of each, how long the oldest due task had waited, 0 if
-- none waited. By the primary key.
SELECT chosen.value, looks.minute, COALESCE(max(found.oldest_age_seconds), 0)
FROM (SELECT DISTINCT minute FROM {schema.}depths WHERE minute > now() - make_interval(secs => %(seconds)s)) AS looks
CROSS JOIN unnest(%(values)s::text[]) AS chosen (value)
LEFT JOIN {schema.}depths AS found
    ON found.minute = looks.minute
   AND found.queue = CASE %(kind)s::text WHEN 'queue' THEN chosen.value ELSE '' END
   AND found.name = CASE %(kind)s::text WHEN 'name' THEN chosen.value ELSE '' END
   AND found.level <> ''
GROUP BY chosen.value, looks.minute
ORDER BY chosen.value, looks.minute
