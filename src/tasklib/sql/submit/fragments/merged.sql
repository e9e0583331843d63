-- Those whose key is free. One order for all, so that two batches with the same keys can't wait for each other. DO
-- NOTHING waits for a rival that is about to commit.
inserted AS (
    INSERT INTO {schema.}tasks (
        {include submitted_columns}, merge_key, merge_while)
    SELECT id, name, queue, kwargs, GREATEST(now(), due), max_retries, timeout_seconds, priority, tags,
           required_capabilities, trace_context, submitted_by, COALESCE(lane, ''), payload_version, key_id,
           merge_key, merge_while
    FROM fresh
    WHERE NOT EXISTS (SELECT FROM met WHERE met.given_id = fresh.id)
    ORDER BY name, merge_key, merge_while
    ON CONFLICT DO NOTHING
    RETURNING id, submitted_by
),
-- Those whose key another task has. That task's row is not locked, since a worker may be running it.
known AS (
    SELECT fresh.id AS given_id, task.id, task.submitted_by, task.state
    FROM fresh
    JOIN {schema.}tasks AS task ON {include same_merge_key}
    WHERE NOT EXISTS (SELECT FROM met WHERE met.given_id = fresh.id)
      AND NOT EXISTS (SELECT FROM inserted WHERE inserted.id = fresh.id)
),
answers AS (
    SELECT id AS given_id, id, CASE WHEN is_the_same THEN 'repeated' ELSE 'foreign' END AS what, submitted_by, state
    FROM repeated
    UNION ALL
    SELECT id, id, 'inserted', submitted_by, 'pending' FROM inserted
    UNION ALL
    SELECT given_id, id, what, submitted_by, 'pending' FROM met
    UNION ALL
    SELECT given_id, id, 'known', submitted_by, state FROM known
),
counted AS (
    INSERT INTO {schema.}stats_deltas (name, queue, level, outcome, reason, count)
    SELECT fresh.name, fresh.queue, {include level}, 'merged',
           CASE WHEN what = 'changed' THEN 'replaced' ELSE 'returned' END, count(*)
    FROM fresh
    JOIN answers ON answers.given_id = fresh.id
    WHERE what IN ('changed', 'held') OR (what = 'known' AND on_duplicate = 'return')
    GROUP BY 1, 2, 3, 5
)
SELECT given_id::text, id::text, what, submitted_by, state FROM answers
