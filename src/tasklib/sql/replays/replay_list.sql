-- The newest first: all, one, or those of a cause.
SELECT {include replay_columns}
FROM {schema.}replays AS replay
WHERE (%(id)s::text IS NULL OR replay.id = %(id)s::text::uuid)
  AND (%(fingerprint)s::text IS NULL OR starts_with(%(fingerprint)s::text, replay.conditions ->> 'fingerprint'))
ORDER BY replay.id DESC
LIMIT %(limit)s
