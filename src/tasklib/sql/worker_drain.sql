-- Asked through the table, told through the channel; the worker says `draining` when it does. Once is enough.
WITH changed AS (
    UPDATE {schema.}workers AS task
    SET drain_requested_at = now()
    WHERE id = %(id)s AND status <> 'dead' AND drain_requested_at IS NULL
    RETURNING 1, {include wake}
),
{include audited}
SELECT * FROM changed
