-- Pause, resume or stop a replay that is under way. No row if it is not in one of these states, or nothing changes. After
-- a canary that failed again, the next one is a canary, too.
WITH changed AS (
    UPDATE {schema.}replays AS replay
    SET status = %(status)s::text,
        per_minute = COALESCE(%(per_minute)s::float8, per_minute),
        next_at = greatest(next_at, now()),
        reason = CASE WHEN %(status)s::text = 'running' THEN NULL ELSE reason END,
        canary = CASE WHEN %(status)s::text = 'running' AND canary = 'failed' THEN 'wanted' ELSE canary END,
        ended_at = CASE WHEN %(status)s::text = 'stopped' THEN now() END
    WHERE id = %(id)s::text::uuid
      AND status = ANY (%(from)s::text[])
      AND (status <> %(status)s::text OR per_minute IS DISTINCT FROM COALESCE(%(per_minute)s::float8, per_minute))
    RETURNING *
),
{include audited}
SELECT {include replay_columns} FROM changed AS replay
