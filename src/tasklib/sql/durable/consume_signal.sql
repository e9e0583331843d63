-- Consume the next signal of a name, with the step that records it: neither is ever there without the other. Without a
-- signal, `expired` records that its time is over.
WITH held AS MATERIALIZED (
    SELECT task.id
    FROM {schema.}tasks AS task
    WHERE task.id = %(id)s::text::uuid
      AND {still_running}
      AND task.lease_token = %(token)s::bigint
      AND task.worker_id = %(worker)s
    FOR SHARE SKIP LOCKED
),
next AS MATERIALIZED (
    SELECT signal.task, signal.seq, signal.payload, clock_timestamp() AS moment
    FROM {schema.}signals AS signal
    WHERE signal.task = (SELECT id FROM held) AND signal.name = %(signal)s::text AND signal.consumed_at IS NULL
    ORDER BY signal.seq
    LIMIT 1
    -- Two branches of one run may wait for the same name: each gets its own.
    FOR NO KEY UPDATE SKIP LOCKED
),
recorded AS (
    INSERT INTO {schema.}steps (task, kind, name, result, token)
    SELECT held.id, 'signal', %(step)s::text,
           CASE WHEN next.seq IS NULL THEN '{"timed_out": true}' ELSE jsonb_build_object('value', next.payload) END,
           %(token)s::bigint
    FROM held
    LEFT JOIN next ON true
    WHERE next.seq IS NOT NULL OR %(expired)s::bool
    ON CONFLICT (task, kind, name) DO NOTHING
    RETURNING result
),
-- Only if the step is new: one that was recorded before has had its signal.
consumed AS (
    UPDATE {schema.}signals AS signal
    SET consumed_at = next.moment
    FROM next
    WHERE signal.task = next.task AND signal.seq = next.seq AND EXISTS (SELECT FROM recorded)
),
-- An approval that got its answer, or none in time, is asked no more.
closed AS (
    UPDATE {schema.}steps AS question
    SET result = question.result || '{"closed": true}'
    WHERE question.task = (SELECT id FROM held) AND question.kind = 'approval' AND question.name = %(approval)s::text
      AND EXISTS (SELECT FROM recorded)
)
SELECT COALESCE((SELECT result FROM recorded),
                (SELECT result FROM {schema.}steps
                 WHERE task = held.id AND kind = 'signal' AND name = %(step)s::text))::text,
       -- Read without the lock, so it is as old as the signals seen above. The locked row may be younger: with its
       -- number a suspension would take a signal for seen that was not.
       (SELECT signals_sent FROM {schema.}tasks WHERE id = %(id)s::text::uuid),
       -- There was something to record, so if no result came of it, it is on record by a statement that is too young to
       -- be seen: ask again.
       %(expired)s::bool OR EXISTS (SELECT FROM next)
FROM held
