-- Not EXISTS, which the planner may answer by reading all tasks that are not finished.
0 < (SELECT count(*) FROM (
         SELECT FROM {schema.}tasks AS run
         WHERE run.schedule = schedule.name AND run.state IN ('pending', 'running', 'failed')
         LIMIT 1) AS unfinished)
