-- Insert one task with an idempotency key, or give back the task that has it: submit_once.sql says how.
{include submit_row}
ON CONFLICT (name, idempotency_key) WHERE idempotency_key IS NOT NULL
DO UPDATE SET idempotency_key = EXCLUDED.idempotency_key
RETURNING id::text, name, idempotency_key, submitted_by
