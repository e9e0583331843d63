-- Take the lead if it is free, or keep it; and say in how many seconds another process's lead ends unless it is kept. A
-- change of hands begins a new term.
-- While another process leads, this only reads: an upsert would lock the row and write to the WAL for every candidate of
-- the fleet, one after the other, and wait for each duty of the leader.
WITH others AS MATERIALIZED (
    SELECT count(*) AS leaders FROM {schema.}leadership WHERE holder <> %(holder)s AND expires_at > now()
),
taken AS (
    INSERT INTO {schema.}leadership AS current (one, holder, term, expires_at)
    SELECT true, %(holder)s, 1, now() + make_interval(secs => %(lease)s)
    FROM others
    WHERE leaders = 0
    ON CONFLICT (one) DO UPDATE
    SET holder = EXCLUDED.holder,
        term = current.term + CASE WHEN current.holder = EXCLUDED.holder THEN 0 ELSE 1 END,
        expires_at = EXCLUDED.expires_at
    -- The same as `expires_at <= now()`, of what was given alone.
    WHERE current.holder = EXCLUDED.holder
       OR current.expires_at - EXCLUDED.expires_at <= -make_interval(secs => %(lease)s)
    RETURNING term
)
SELECT (SELECT term FROM taken), (SELECT extract(epoch FROM expires_at - now())::float8 FROM {schema.}leadership)
