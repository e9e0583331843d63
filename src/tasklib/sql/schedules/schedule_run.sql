-- Runs of a schedule that were asked for: one without a slot now, or those of slots that have passed. The ids were made
-- by the client, so that a request whose answer was lost can be sent again; and a slot has one task, ever.
WITH changed AS (
    INSERT INTO {schema.}tasks (
        id, name, queue, kwargs, max_retries, timeout_seconds, priority, tags, required_capabilities,
        payload_version, schedule, slot, submitted_by)
    SELECT run.id, schedule.task, template ->> 'queue', template -> 'kwargs', (template ->> 'max_retries')::int,
           (template ->> 'timeout_seconds')::int, COALESCE(%(priority)s, (template ->> 'priority')::int),
           template -> 'tags', ARRAY(SELECT jsonb_array_elements_text(template -> 'required_capabilities')),
           (template ->> 'payload_version')::smallint, schedule.name, run.slot, %(submitted_by)s
    FROM {schema.}schedules AS schedule
    CROSS JOIN jsonb_to_recordset(%(runs)s::text::jsonb) AS run (id uuid, slot timestamptz)
    WHERE schedule.name = %(name)s
    ORDER BY run.slot
    ON CONFLICT DO NOTHING
    RETURNING id
),
{include audited_batch}
SELECT id::text FROM changed ORDER BY id
