WITH changed AS (
    UPDATE {schema.}api_tokens
    SET revoked_at = now()
    WHERE id = %(id)s::text::uuid AND revoked_at IS NULL
    RETURNING *
),
{include audited}
SELECT {include token_columns} FROM changed
