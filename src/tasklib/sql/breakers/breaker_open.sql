-- By hand: for so many seconds, then it probes; null: until it is closed.
WITH changed AS (
    UPDATE {schema.}breakers
    SET state = 'open', since = (SELECT CASE WHEN state = 'open' THEN since ELSE now() END),
        until = now() + make_interval(secs => %(seconds)s::float8), passed = 0, probe_ids = '{}', probe_tokens = '{}',
        seen_attempts = NULL, seen_failures = NULL, opened = opened + (state <> 'open')::int, changed_at = now(),
        changed_by = ''
    WHERE name = %(name)s AND failures IS NOT NULL
      AND (state <> 'open' OR until IS DISTINCT FROM now() + make_interval(secs => %(seconds)s::float8))
    RETURNING 1
),
{include audited}
SELECT * FROM changed
