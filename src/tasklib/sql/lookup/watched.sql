-- The state of tasks that clients wait for. The version changes whenever the visible state does.
SELECT id::text, state,
       md5(concat_ws('.', state, lease_token, retry_count, cancel_requested_at, next_retry_at, progress))
FROM {schema.}tasks
WHERE id = ANY (%(ids)s::text[]::uuid[])
