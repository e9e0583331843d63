-- Tasks that were sealed anew with another key. A task that was claimed, replayed, cancelled or sealed by a rival since it
-- was read is left as it is: its token, state or key differ then.
WITH given AS (
    SELECT *
    FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(states)s::text[], %(kwargs)s::text[], %(results)s::text[],
                %(errors)s::text[], %(progress)s::text[]) AS given (id, token, state, kwargs, result, error, progress)
),
changed AS (
    UPDATE {schema.}tasks AS task
    SET kwargs = given.kwargs::jsonb,
        result = given.result::jsonb,
        error = given.error,
        progress = given.progress::jsonb,
        key_id = %(new_key)s::text,
        required_capabilities = ARRAY(
            SELECT CASE WHEN required = concat('key:', %(old_key)s::text) THEN concat('key:', %(new_key)s::text)
                        ELSE required END COLLATE "C"
            FROM unnest(task.required_capabilities) AS required
            ORDER BY 1)
    FROM given
    WHERE task.id = ANY (ARRAY[given.id])
      AND task.key_id = %(old_key)s
      AND task.lease_token = given.token
      AND task.state = given.state
      AND task.state <> 'running'
    RETURNING task.id
),
{include audited_batch}
SELECT id::text FROM changed
