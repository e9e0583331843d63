SELECT id, name, prefix, hash, roles, queues, expires_at, revoked_at, {include token_usable}
FROM {schema.}api_tokens
WHERE prefix = %(prefix)s::text
