-- When it expires is counted by the database's clock, which also decides whether it has.
WITH changed AS (
    INSERT INTO {schema.}api_tokens (id, name, prefix, hash, roles, queues, created_by, expires_at)
    VALUES (%(id)s::text::uuid, %(name)s, %(prefix)s, %(hash)s, %(roles)s::text[], %(queues)s::text[], %(actor)s,
            now() + make_interval(secs => %(expires_in)s::float8))
    RETURNING *
),
{include audited}
SELECT {include token_columns} FROM changed
