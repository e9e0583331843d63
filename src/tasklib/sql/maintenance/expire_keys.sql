-- Idempotency keys whose window has passed. (A new submission frees its key itself; this keeps the index small.)
WITH {include leader}
UPDATE {schema.}tasks
SET idempotency_key = NULL, idempotency_expires_at = NULL
WHERE id IN (
    SELECT id FROM {schema.}tasks
    WHERE EXISTS (SELECT FROM leader)
      AND idempotency_key IS NOT NULL
      AND idempotency_expires_at <= now()
    ORDER BY idempotency_expires_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED)
RETURNING id::text
