revoked_at IS NULL AND COALESCE(expires_at > now(), true)
