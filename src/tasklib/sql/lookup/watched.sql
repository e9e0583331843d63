-- How tasks stand that somebody waits for. The version is another one whenever there is something new to tell.
SELECT id::text, state,
       md5(concat_ws('.', state, lease_token, retry_count, cancel_requested_at, next_retry_at, progress))
FROM {schema.}tasks
WHERE id = ANY (%(ids)s::text[]::uuid[])
