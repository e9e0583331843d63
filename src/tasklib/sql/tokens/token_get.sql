SELECT {include token_columns}
FROM {schema.}api_tokens
WHERE id = %(id)s::text::uuid OR prefix = %(prefix)s::text
