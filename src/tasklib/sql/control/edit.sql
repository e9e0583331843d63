-- Change a waiting task. Only as it was seen: one that a worker took meanwhile, or that another editor changed, stays as
-- it is. A claim that is under way is waited for, and then seen.
WITH changed AS (
    UPDATE {schema.}tasks AS task
    SET kwargs = COALESCE(%(kwargs)s::text::jsonb, kwargs),
        -- Other arguments may be behind other limits: the next claim adds those that follow from the new ones.
        lane = CASE WHEN %(kwargs)s::text IS NULL OR lane >= E'\x02' THEN lane ELSE own.parts END,
        queue = COALESCE(%(queue)s::text, queue),
        priority = COALESCE(%(priority)s::int, priority),
        max_retries = COALESCE(%(max_retries)s::int, max_retries),
        timeout_seconds = COALESCE(%(timeout_seconds)s::int, timeout_seconds),
        tags = COALESCE(%(tags)s::text::jsonb, tags),
        required_capabilities = COALESCE(%(required_capabilities)s::text[], required_capabilities),
        scheduled_at = CASE WHEN next_retry_at IS NULL THEN COALESCE(moved.due, scheduled_at) ELSE scheduled_at END,
        next_retry_at = CASE WHEN next_retry_at IS NOT NULL THEN COALESCE(moved.due, next_retry_at) END
    FROM (
        -- As in a submission, a moment that has passed means now.
        SELECT CASE WHEN COALESCE(%(scheduled_at)s::text, %(delay_seconds)s::text) IS NOT NULL
                    THEN GREATEST(now(), %(scheduled_at)s::text::timestamptz,
                                  now() + make_interval(secs => %(delay_seconds)s::text::float8)) END AS due
    ) AS moved
    CROSS JOIN (
        -- The parts of its lane that its submission named, without those that its arguments brought.
        SELECT COALESCE(string_agg(E'\x01' || part, '' ORDER BY place), '') AS parts
        FROM {schema.}tasks AS before
        CROSS JOIN LATERAL string_to_table(substr(before.lane, 2), E'\x01') WITH ORDINALITY AS had (part, place)
        WHERE before.id = %(id)s::text::uuid
          AND before.lane <> ''
          AND part <> ALL (string_to_array({schema.}tasklib_lane(before.name, '', before.kwargs), E'\x01'))
    ) AS own
    WHERE task.id = %(id)s::text::uuid
      AND state IN ('pending', 'failed')
      AND {include edit_version} = %(version)s::text
      AND {include owned}
    RETURNING state, task.queue, task.name, task.required_capabilities
),
{include audited}
SELECT state FROM (SELECT state, {include wake_one} FROM changed AS task) AS told
