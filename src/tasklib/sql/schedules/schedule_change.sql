-- Change a schedule, or let it go on. Its next slot, and what passed without being decided and goes on record, were
-- computed from the revision and the slots that it must still have. A null leaves a column as it is.
WITH changed AS (
    UPDATE {schema.}schedules AS schedule
    SET task = COALESCE(%(task)s, schedule.task),
        spec = COALESCE(%(spec)s::text::jsonb, schedule.spec),
        template = COALESCE(%(template)s::text::jsonb, schedule.template),
        module = COALESCE(%(module)s, schedule.module),
        deployed_at = COALESCE(%(deployed_at)s::timestamptz, schedule.deployed_at),
        next_slot = %(next_slot)s::timestamptz,
        waiting_slot = NULL,
        last_slot = GREATEST(schedule.last_slot, %(last_slot)s::timestamptz),
        skipped = schedule.skipped + %(lost)s,
        retired_at = CASE WHEN %(revive)s THEN NULL ELSE schedule.retired_at END,
        paused_at = CASE WHEN %(resume)s THEN NULL ELSE schedule.paused_at END,
        paused_by = CASE WHEN %(resume)s THEN NULL ELSE schedule.paused_by END,
        pause_note = CASE WHEN %(resume)s THEN NULL ELSE schedule.pause_note END,
        resumed_at = (SELECT CASE WHEN %(resume)s THEN now() ELSE schedule.resumed_at END),
        revision = schedule.revision + 1,
        changed_at = now()
    FROM {schema.}schedules AS old
    WHERE schedule.name = %(name)s AND schedule.revision = %(revision)s AND old.name = schedule.name
      AND schedule.next_slot IS NOT DISTINCT FROM %(read_slot)s::timestamptz
      AND schedule.waiting_slot IS NOT DISTINCT FROM %(read_waiting)s::timestamptz
      -- Two deploys may have read the same revision: the newer one's stamp stays.
      AND (schedule.deployed_at < %(deployed_at)s::timestamptz) IS NOT FALSE
    RETURNING schedule.name, schedule.task, old.last_slot AS previous_slot, schedule.next_slot
),
skipped AS (
    SELECT changed.name, changed.task, changed.previous_slot, skip.*
    FROM changed
    CROSS JOIN jsonb_to_recordset(%(skips)s::text::jsonb) AS skip (
        reason text, count bigint, first_slot timestamptz, last_slot timestamptz, follows boolean)
),
{include schedule_skips_recorded},
slots_counted AS (
    INSERT INTO {schema.}stats_deltas (name, outcome, reason, count)
    SELECT task, 'slot_skipped', reason, sum(count) FROM skipped GROUP BY task, reason
),
{include audited}
SELECT name FROM (SELECT name, {include wake_leader} FROM changed) AS told
