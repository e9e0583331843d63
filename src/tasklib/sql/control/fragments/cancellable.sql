-- What waits, in a lane or at a gate, and what runs and has not been asked yet: each from its own index, so finished
-- tasks cost nothing.
    SELECT id, state FROM {schema.}tasks AS task
    WHERE task.state IN ('pending', 'failed') AND task.waits_for IS NULL AND {include task_filter}
    UNION ALL
    SELECT id, state FROM {schema.}tasks AS task
    WHERE task.state IN ('pending', 'failed') AND task.waits_for IS NOT NULL AND {include task_filter}
    UNION ALL
    SELECT id, state FROM {schema.}tasks AS task
    WHERE task.state = 'running' AND task.cancel_requested_at IS NULL AND {include task_filter}
