-- Stored in the table and notified through the channel; the worker reports `draining` when it does. Once is enough.
WITH changed AS (
    UPDATE {schema.}worker_registrations AS task
    SET drain_requested_at = now()
    WHERE id = %(id)s
      AND drain_requested_at IS NULL
      AND EXISTS (SELECT FROM {schema.}workers WHERE workers.id = task.id AND status <> 'dead')
    RETURNING 1
),
{include audited}
SELECT {include wake} FROM changed
