-- Arrivals at `gate` that are not counted yet.
(SELECT sum(arrivals.completed)::bigint AS completed, sum(arrivals.failed)::bigint AS failed,
        sum(arrivals.expected)::bigint AS expected
 FROM {schema.}arrivals WHERE arrivals.gate = gate.id)
