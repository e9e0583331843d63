-- Whether arrivals at `gate` have to be counted now. While the gate is not decided, tasks that completed are counted
-- together with the one that may decide it, some at a time, or by the leader's sweep: a fold for each batch of a large
-- group would cost more than its tasks' arrivals. The session that adds the last arrival sees all others, because it looks
-- after its commit. A failure may decide a gate at once, but not that of a whole flow, which waits for the last task.
CASE WHEN gate.opened_at IS NULL AND gate.failed_at IS NULL
          AND (gate.kind = 'flow' OR gate.policy ->> 'kind' IN ('all', 'settled'))
     THEN (SELECT COALESCE(count(*) >= 100
                           OR gate.completed + gate.failed + sum(arrived.completed + arrived.failed)
                              >= gate.expected + COALESCE(sum(arrived.expected), 0)
                           OR (gate.kind <> 'flow' AND NOT bool_and(arrived.completed > 0 AND arrived.failed = 0)), false)
           FROM {schema.}arrivals AS arrived WHERE arrived.gate = gate.id)
     ELSE EXISTS (SELECT FROM {schema.}arrivals AS arrived WHERE arrived.gate = gate.id) END
