-- Take the lead if it is free, or keep it. A change of hands begins a new term.
INSERT INTO {schema.}leadership AS current (holder, expires_at)
VALUES (%(holder)s, now() + make_interval(secs => %(lease)s))
ON CONFLICT (one) DO UPDATE
SET holder = EXCLUDED.holder,
    term = current.term + CASE WHEN current.holder = EXCLUDED.holder THEN 0 ELSE 1 END,
    expires_at = EXCLUDED.expires_at
WHERE current.holder = EXCLUDED.holder OR current.expires_at <= now()
RETURNING term
