-- Idle workers are notified and claim at once.
WITH changed AS (
    DELETE FROM {schema.}pauses AS task WHERE kind = %(kind)s AND value = %(value)s RETURNING 1
),
{include audited}
SELECT {include wake} FROM changed
