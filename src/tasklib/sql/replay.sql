-- The only way out of a terminal state, and recorded: a fresh start with all retries, under the same growing token.
UPDATE {schema.}tasks AS task
SET state = 'pending',
    scheduled_at = now(),
    retry_count = 0,
    crash_count = 0,
    result = NULL,
    error = NULL,
    next_retry_at = NULL,
    started_at = NULL,
    completed_at = NULL,
    cancel_requested_at = NULL,
    progress = NULL,
    history = jsonb_path_query_array(COALESCE(history, '[]'), '$[last - 48 to last]') || jsonb_build_object(
        'outcome', 'replayed', 'was', state, 'token', lease_token, 'ended_at', now(), 'error', right(error, 500))
WHERE id = %(id)s::text::uuid AND state IN ('completed', 'cancelled', 'dead_letter')
RETURNING state, {include wake}
