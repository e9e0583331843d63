-- At most once a minute for each token, however many servers there are. What another one is just writing is left to it.
UPDATE {schema.}api_tokens
SET last_used_at = now()
WHERE id IN (
    SELECT id FROM {schema.}api_tokens
    WHERE id = ANY (%(ids)s::text[]::uuid[])
      AND COALESCE(last_used_at < now() - interval '1 minute', true)
    FOR UPDATE SKIP LOCKED)
