-- Ids begin with their creation time, so rows that are younger by a day and more need not be read.
-- One page of finished tasks in the order of their ids, which is the order of their creation; of these, delete what is
-- old enough. What stays is passed over by the next page, so rows that are kept never hide the rest.
WITH {include leader},
page AS (
    SELECT id, state, name, completed_at
    FROM {schema.}tasks
    WHERE EXISTS (SELECT FROM leader)
      AND id > %(after)s::text::uuid
      AND id < (lpad(to_hex((extract(epoch FROM now() - make_interval(secs => %(age)s - 86400)) * 1000)::bigint), 12, '0')
                || repeat('0', 20))::uuid
    ORDER BY id
    LIMIT %(limit)s
),
deleted AS (
    DELETE FROM {schema.}tasks
    WHERE id IN (
        SELECT task.id
        FROM {schema.}tasks AS task
        JOIN page ON page.id = task.id
        WHERE task.state = %(state)s
          -- A flow is deleted as a whole: forget_flows.sql.
          AND task.flow IS NULL
          AND (%(name)s::text IS NULL OR task.name = %(name)s::text)
          AND task.name <> ALL (%(except_names)s::text[])
          AND task.completed_at < now() - make_interval(secs => %(age)s)
        FOR UPDATE OF task SKIP LOCKED)
    RETURNING 1
)
SELECT (SELECT max(id::text) FROM page), (SELECT count(*) FROM page), (SELECT count(*) FROM deleted)
