-- What a failed attempt is told from.
id, name, queue, state, error, history, started_at, created_at, completed_at, submitted_by
