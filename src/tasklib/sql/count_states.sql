-- How many tasks there are of each state that has an index, up to a limit. Waiting tasks are counted in the order of
-- their index, so that it is used; the others likewise.
SELECT 'waiting', count(*), count(*) >= %(most)s FROM (
    SELECT FROM {schema.}tasks
    WHERE state IN ('pending', 'failed')
    ORDER BY queue, name, required_capabilities, priority, {due}, id
    LIMIT %(most)s) AS task
UNION ALL
SELECT 'running', count(*), count(*) >= %(most)s FROM (
    SELECT FROM {schema.}tasks WHERE state = 'running' ORDER BY locked_until LIMIT %(most)s) AS task
UNION ALL
SELECT 'failed', count(*), count(*) >= %(most)s FROM (
    SELECT FROM {schema.}tasks AS task
    WHERE {include set_aside} AND (state, id) > ('failed', '00000000-0000-0000-0000-000000000000')
      AND (state, id) < ('failed', 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY state, id
    LIMIT %(most)s) AS task
UNION ALL
SELECT 'cancelled', count(*), count(*) >= %(most)s FROM (
    SELECT FROM {schema.}tasks AS task
    WHERE {include set_aside} AND (state, id) > ('cancelled', '00000000-0000-0000-0000-000000000000')
      AND (state, id) < ('cancelled', 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY state, id
    LIMIT %(most)s) AS task
UNION ALL
SELECT 'dead_letter', count(*), count(*) >= %(most)s FROM (
    SELECT FROM {schema.}tasks AS task
    WHERE {include set_aside} AND (state, id) > ('dead_letter', '00000000-0000-0000-0000-000000000000')
      AND (state, id) < ('dead_letter', 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY state, id
    LIMIT %(most)s) AS task
