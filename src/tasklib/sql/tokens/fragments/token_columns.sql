id, name, prefix, roles, queues, created_at, created_by, expires_at, revoked_at, last_used_at,
       {include token_usable}
