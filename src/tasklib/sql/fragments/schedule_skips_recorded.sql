-- What the CTE `skipped` holds goes on record. What follows directly on what was skipped before, for the same reason,
-- makes that row longer.
lengthened AS (
    UPDATE {schema.}schedule_skips AS known
    SET last_slot = skipped.last_slot, count = known.count + skipped.count
    FROM skipped
    WHERE skipped.follows AND known.schedule = skipped.name AND known.last_slot = skipped.previous_slot
      AND known.reason = skipped.reason
    RETURNING known.schedule
),
recorded_skips AS (
    INSERT INTO {schema.}schedule_skips (schedule, first_slot, last_slot, reason, count)
    SELECT name, first_slot, last_slot, reason, count
    FROM skipped
    WHERE NOT (follows AND EXISTS (SELECT FROM lengthened WHERE lengthened.schedule = skipped.name))
    ON CONFLICT (schedule, last_slot) DO NOTHING
)
