-- A purge leaves the tasks of flows: a flow is deleted as a whole (forget_flows.sql).
(%(of_flows)s::bool OR task.flow IS NULL)
