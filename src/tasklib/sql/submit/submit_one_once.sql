-- Insert one task with an idempotency key, or return the task that has it: see submit_once.sql.
WITH inserted AS (
    {include submit_row}
    ON CONFLICT (name, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING id, name, idempotency_key, submitted_by
)
SELECT id::text, name, idempotency_key, submitted_by FROM inserted
UNION ALL
SELECT id::text, name, idempotency_key, submitted_by
FROM {schema.}tasks
WHERE name = CAST(%(name)s AS text)
  AND idempotency_key = CAST(%(idempotency_key)s AS text)
  AND (idempotency_expires_at > now()) IS NOT FALSE
  AND NOT EXISTS (SELECT FROM inserted)
