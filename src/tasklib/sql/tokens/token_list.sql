SELECT {include token_columns}
FROM {schema.}api_tokens
ORDER BY id
