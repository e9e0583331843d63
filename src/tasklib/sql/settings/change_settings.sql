-- Change only the named settings; null returns a setting to the configuration. No row if nothing changed.
WITH changed AS (
    INSERT INTO {schema.}settings AS current (promote_to_medium_after_seconds, promote_to_high_after_seconds)
    VALUES (%(medium_after)s::float8, %(high_after)s::float8)
    ON CONFLICT (one) DO UPDATE
    SET promote_to_medium_after_seconds = CASE WHEN %(change_medium)s::bool
            THEN EXCLUDED.promote_to_medium_after_seconds ELSE current.promote_to_medium_after_seconds END,
        promote_to_high_after_seconds = CASE WHEN %(change_high)s::bool
            THEN EXCLUDED.promote_to_high_after_seconds ELSE current.promote_to_high_after_seconds END
    WHERE (%(change_medium)s::bool
           AND EXCLUDED.promote_to_medium_after_seconds IS DISTINCT FROM current.promote_to_medium_after_seconds)
       OR (%(change_high)s::bool
           AND EXCLUDED.promote_to_high_after_seconds IS DISTINCT FROM current.promote_to_high_after_seconds)
    RETURNING promote_to_medium_after_seconds, promote_to_high_after_seconds
),
{include audited}
SELECT * FROM changed
