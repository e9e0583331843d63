-- The lanes that hold tasks, up to a limit.
WITH RECURSIVE {include lanes_with_tasks}
SELECT queue, name, required_capabilities, priority,
       extract(epoch FROM now() - greatest(due, now() - interval '100 years'))::float8
FROM lanes
LIMIT %(most)s
