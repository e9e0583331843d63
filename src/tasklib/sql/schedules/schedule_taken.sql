-- Which of these slots have a task.
SELECT slot
FROM {schema.}tasks
WHERE schedule = %(name)s AND slot = ANY (%(slots)s::timestamptz[])
