-- What there is to know about one task's situation, apart from the workers.
SELECT id, name, queue, state, required_capabilities, priority,
       CASE WHEN state IN ('pending', 'failed')
            THEN {schema.}tasklib_effective_priority(priority, {due}, medium_after, high_after, now())
            ELSE priority END,
       {due}, now(), retry_count, crash_count, max_retries, history -> -1 ->> 'attempt', right(error, 2000), left((result -> 'value')::text, 500),
       started_at, completed_at, worker_id, locked_until, timeout_seconds, cancel_requested_at, progress, awaited_signals,
       (SELECT count(*) FROM {schema.}steps WHERE task = tasks.id),
       (SELECT paused_at FROM {schema.}pauses WHERE kind = 'queue' AND value = queue),
       (SELECT paused_at FROM {schema.}pauses WHERE kind = 'name' AND value = name),
       (SELECT jsonb_build_object('gate', gate.id, 'flow', flow.name, 'flow_id', flow.id, 'nodes', gate.nodes,
                                  'policy', gate.policy, 'expected', gate.expected + COALESCE(arrived.expected, 0),
                                  'sealed', gate.sealed, 'completed', gate.completed + COALESCE(arrived.completed, 0),
                                  'failed', gate.failed + COALESCE(arrived.failed, 0))
        FROM {schema.}gates AS gate LEFT JOIN {schema.}flows AS flow ON flow.id = gate.flow
        CROSS JOIN LATERAL {include uncounted} AS arrived
        WHERE gate.id = tasks.waits_for),
       (SELECT jsonb_build_object('state', breaker.state, 'since', since, 'until', until, 'attempts', seen_attempts,
                                  'failures', seen_failures, 'is_probe', tasks.id = ANY (probe_ids))
        FROM {schema.}breakers AS breaker WHERE breaker.name = tasks.name AND breaker.state <> 'closed')
FROM {schema.}tasks
CROSS JOIN {include thresholds}
WHERE id = %(id)s::text::uuid AND {include owned}
