-- The replays that the leader has to look after: under way, or with tasks that have not ended.
SELECT id::text, conditions
FROM {schema.}replays
WHERE NOT settled
ORDER BY id
LIMIT %(limit)s
