-- Insert tasks that carry an idempotency key; a key already taken gives back the task that has it. That task's row is not
-- locked, since a worker may be running it. DO NOTHING waits for a rival that is about to commit, so a race has one
-- winner; but its row may be younger than this statement's snapshot. Then nothing comes back, and the caller asks again.
WITH given AS (
    SELECT *
    FROM jsonb_to_recordset(CAST(CAST(%(tasks)s AS text) AS jsonb)) AS task (
        {include new_task}, idempotency_key text, idempotency_window float8)
), inserted AS (
    INSERT INTO {schema.}tasks (
        {include submitted_columns}, idempotency_key, idempotency_expires_at)
    SELECT {include submitted_values}, idempotency_key, now() + make_interval(secs => idempotency_window)
    FROM given
    -- One order for all, so that two batches with the same keys can't wait for each other.
    ORDER BY name, idempotency_key
    ON CONFLICT (name, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING id, name, idempotency_key, submitted_by
)
SELECT id::text, name, idempotency_key, submitted_by FROM inserted
UNION ALL
SELECT known.id::text, known.name, known.idempotency_key, known.submitted_by
FROM given
JOIN {schema.}tasks AS known ON known.name = given.name AND known.idempotency_key = given.idempotency_key
-- A key that has expired was freed by this very insert, or by a rival's.
WHERE (known.idempotency_expires_at > now()) IS NOT FALSE
  AND NOT EXISTS (SELECT FROM inserted
                  WHERE inserted.name = known.name AND inserted.idempotency_key = known.idempotency_key)
