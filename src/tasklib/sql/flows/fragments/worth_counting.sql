-- Whether arrivals at `gate` have to be counted now. The gate of a whole flow is told of every task, and only the last one
-- decides: the others are counted together with it, some at a time, or by the leader's sweep. Whoever adds the last
-- arrival sees all others, because it looks after its commit.
CASE WHEN gate.kind = 'flow' AND gate.opened_at IS NULL
     THEN (SELECT COALESCE(count(*) >= 100 OR gate.completed + gate.failed + sum(arrived.completed + arrived.failed)
                                              >= gate.expected + COALESCE(sum(arrived.expected), 0), false)
           FROM {schema.}arrivals AS arrived WHERE arrived.gate = gate.id)
     ELSE EXISTS (SELECT FROM {schema.}arrivals AS arrived WHERE arrived.gate = gate.id) END
