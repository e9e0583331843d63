WITH changed AS (
    INSERT INTO {schema.}pauses (kind, value) VALUES (%(kind)s, %(value)s) ON CONFLICT DO NOTHING RETURNING 1
),
{include audited}
SELECT * FROM changed
