-- Approvals that wait for an answer, the oldest first. The partial index holds those that are not closed; the task says
-- whether it goes on at all.
SELECT step.task::text, task.name, task.queue, step.name, step.token, step.recorded_at, step.result -> 'value'
FROM {schema.}steps AS step
JOIN {schema.}tasks AS task ON task.id = step.task
WHERE step.kind = 'approval' AND NOT step.result ? 'closed'
  AND task.state IN ('pending', 'running', 'failed')
  -- One that was answered, and whose task has not taken the answer yet, is no longer open.
  AND NOT EXISTS (SELECT FROM {schema.}signals AS signal
                  WHERE signal.task = step.task AND signal.key = 'approval:' || step.name || ':' || step.token)
  AND (%(task)s::text IS NULL OR step.task = %(task)s::text::uuid)
  AND (%(name)s::text IS NULL OR step.name = %(name)s::text)
  AND (%(after_at)s::timestamptz IS NULL
       OR (step.recorded_at, step.task, step.name) > (%(after_at)s::timestamptz, %(after_task)s::text::uuid, %(after_name)s::text))
  AND (%(owner)s::text IS NULL OR task.submitted_by = %(owner)s::text)
ORDER BY step.recorded_at, step.task, step.name
LIMIT %(limit)s::int
