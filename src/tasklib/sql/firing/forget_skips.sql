-- Records of skipped slots that are too old to be asked for, some at a time.
WITH {include leader},
old AS (
    SELECT schedule, last_slot FROM {schema.}schedule_skips
    WHERE EXISTS (SELECT FROM leader) AND at < now() - make_interval(secs => %(age)s)
    LIMIT %(limit)s
)
DELETE FROM {schema.}schedule_skips AS skip
USING old
WHERE skip.schedule = old.schedule AND skip.last_slot = old.last_slot
RETURNING 1
