-- The place of each task among all that its worker holds, in the order of its claims. A worker begins its tasks in this
-- order, and those it has begun without storing their results are never more than it says in `may_begin`. So what is
-- further behind has not begun. Workers without a number (over HTTP, or with a claim whose answer they never got) may
-- have begun everything.
held AS MATERIALIZED (
    SELECT id, row_number() OVER (PARTITION BY worker_id ORDER BY started_at, {due}, id) AS place,
           (SELECT may_begin FROM {schema.}worker_registrations AS worker WHERE worker.id = task.worker_id) AS may_begin
    FROM {schema.}tasks AS task
    WHERE state = 'running' AND worker_id IN (SELECT worker_id FROM concerned)
)
