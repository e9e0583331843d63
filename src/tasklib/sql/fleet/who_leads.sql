SELECT holder FROM {schema.}leadership WHERE expires_at > now()
