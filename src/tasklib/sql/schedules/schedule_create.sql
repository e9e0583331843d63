-- A name that is taken changes nothing.
WITH changed AS (
    INSERT INTO {schema.}schedules AS schedule (name, task, spec, template, source, module, deployed_at, next_slot)
    VALUES (%(name)s, %(task)s, %(spec)s::text::jsonb, %(template)s::text::jsonb, %(source)s, %(module)s,
            %(deployed_at)s::timestamptz, %(next_slot)s::timestamptz)
    ON CONFLICT (name) DO NOTHING
    RETURNING name, next_slot
),
{include audited}
SELECT name FROM (SELECT name, {include wake_leader} FROM changed) AS told
