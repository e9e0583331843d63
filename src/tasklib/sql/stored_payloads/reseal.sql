-- Tasks that were sealed anew with another key. A task that was claimed, replayed, cancelled or sealed by a rival since it
-- was read is left as it is, as one is that got a signal: its token, state, key or count of signals differ then.
WITH given AS (
    SELECT *
    FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(states)s::text[], %(kwargs)s::text[], %(results)s::text[],
                %(errors)s::text[], %(progress)s::text[], %(signals_sent)s::bigint[], %(steps)s::text[], %(signals)s::text[])
         AS given (id, token, state, kwargs, result, error, progress, signals_sent, steps, signals)
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
      AND task.signals_sent IS NOT DISTINCT FROM given.signals_sent
    RETURNING task.id, given.steps, given.signals
),
steps_changed AS (
    UPDATE {schema.}steps AS step
    SET result = (one.value ->> 2)::jsonb
    FROM changed
    CROSS JOIN LATERAL json_array_elements(changed.steps::json) AS one
    WHERE step.task = changed.id AND step.kind = one.value ->> 0 AND step.name = one.value ->> 1
),
signals_changed AS (
    UPDATE {schema.}signals AS signal
    SET payload = (one.value ->> 1)::jsonb
    FROM changed
    CROSS JOIN LATERAL json_array_elements(changed.signals::json) AS one
    WHERE signal.task = changed.id AND signal.seq = (one.value ->> 0)::bigint
),
{include audited_batch}
SELECT id::text FROM changed
