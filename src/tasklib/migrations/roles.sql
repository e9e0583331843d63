-- Roles for TaskLib's tables, each with the rights it needs and no more. Run this as a superuser, or as the owner of the
-- tables with the right to create roles; run it again after each `tasklib migrate` that changed something.
-- None of the roles can log in. Grant them to those that can: GRANT {producer} TO shop_web;
--
--   {owner}     owns the tables: for `tasklib migrate`
--   {reader}    sees tasks and the fleet, neither tokens nor the audit
--   {producer}  submits tasks, and sees nothing of others but their keys and states
--   {worker}    runs tasks, leads the fleet, and submits
--   {server}    all that `tasklib server` and the commands of an operator do
DO $roles$
DECLARE
    wanted text;
    found record;
BEGIN
    FOREACH wanted IN ARRAY ARRAY[{names}] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        END IF;
    END LOOP;
    FOR found IN
        SELECT format('ALTER TABLE %I.%I OWNER TO %I', nspname, relname, {owner_name}) AS change
        FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace
        WHERE nspname = {schema_name} AND relkind IN ('r', 'v')
          AND relname IN ('tasks', 'steps', 'signals', 'workers', 'worker_registrations', 'leadership',
                          'flows', 'gates', 'arrivals', 'schedules', 'schedule_skips', 'pauses', 'backpressure', 'settings', 'saved_searches',
                          'limits', 'limit_states', 'limited_names', 'places', 'breakers', 'breaker_counts',
                          'snapshots', 'replays', 'replayed_tasks', 'depths', 'deploys', 'stats', 'stats_deltas', 'api_tokens', 'audit', 'tasklib_version')
        UNION ALL
        SELECT format('ALTER FUNCTION %s OWNER TO %I', p.oid::regprocedure, {owner_name})
        FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = pronamespace
        WHERE nspname = {schema_name} AND proname LIKE 'tasklib\_%'
    LOOP
        EXECUTE found.change;
    END LOOP;
END
$roles$;

GRANT USAGE ON SCHEMA {schema} TO {owner}, {reader}, {producer}, {worker}, {server};
GRANT CREATE ON SCHEMA {schema} TO {owner};

-- The reader.
GRANT SELECT ON {schema}.tasks, {schema}.workers, {schema}.worker_registrations, {schema}.leadership,
    {schema}.steps, {schema}.signals, {schema}.flows, {schema}.gates, {schema}.arrivals, {schema}.schedules,
    {schema}.schedule_skips, {schema}.pauses, {schema}.backpressure, {schema}.settings, {schema}.limits, {schema}.limit_states,
    {schema}.limited_names, {schema}.places, {schema}.saved_searches, {schema}.breakers, {schema}.breaker_counts, {schema}.replays, {schema}.replayed_tasks, {schema}.snapshots, {schema}.depths,
    {schema}.deploys, {schema}.stats, {schema}.stats_deltas, {schema}.tasklib_version TO {reader};

-- The producer. It can insert a task that waits, and free or find an idempotency key; what a worker writes it can't.
GRANT INSERT (id, name, queue, lane, args, kwargs, scheduled_at, max_retries, timeout_seconds, priority, tags,
              required_capabilities, trace_context, submitted_by, idempotency_key, idempotency_expires_at,
              flow, node, waits_for, reports_to, merge_key, merge_while, payload_version, key_id),
      SELECT (id, name, state, lease_token, submitted_by, idempotency_key, idempotency_expires_at, merge_key, merge_while),
      UPDATE (idempotency_key, idempotency_expires_at)
    ON {schema}.tasks TO {producer};
-- Arguments that keys of limits are made of don't go into a payload store.
GRANT SELECT ON {schema}.limited_names TO {producer};
-- Submissions that find their merge key taken are counted.
GRANT INSERT (name, queue, level, outcome, reason, count) ON {schema}.stats_deltas TO {producer};
GRANT INSERT (id, name, submitted_by, parent, first_task, finished_at) ON {schema}.flows TO {producer};
GRANT SELECT (id) ON {schema}.flows TO {producer};
GRANT INSERT (id, flow, kind, policy, nodes, waiters, expected, sealed, opened_at, released) ON {schema}.gates TO {producer};
GRANT SELECT (id) ON {schema}.gates TO {producer};

-- The worker, which may become the leader: that deletes what is kept no longer.
GRANT {reader}, {producer} TO {worker};
GRANT INSERT (schedule, slot), UPDATE, DELETE ON {schema}.tasks TO {worker};
GRANT INSERT, UPDATE, DELETE ON {schema}.workers, {schema}.worker_registrations, {schema}.leadership,
    {schema}.steps, {schema}.signals, {schema}.flows, {schema}.gates, {schema}.arrivals,
    {schema}.schedule_skips, {schema}.snapshots, {schema}.depths, {schema}.deploys, {schema}.stats, {schema}.stats_deltas TO {worker};
-- It counts what is behind limits, and declares those of its functions, which marks their names.
GRANT INSERT, UPDATE, DELETE ON {schema}.limits, {schema}.limit_states, {schema}.limited_names, {schema}.places
    TO {worker};
-- Its leader moves breakers on, which is recorded in the audit by a trigger.
GRANT INSERT, UPDATE, DELETE ON {schema}.breakers, {schema}.breaker_counts TO {worker};
-- Its leader works on replays. Only the server begins them: that is recorded in the audit.
GRANT UPDATE, DELETE ON {schema}.replays TO {worker};
GRANT INSERT, UPDATE, DELETE ON {schema}.replayed_tasks TO {worker};
-- Its leader fires schedules. Only the server makes and deletes them: that is recorded in the audit.
GRANT UPDATE ON {schema}.schedules TO {worker};

-- The server. Tokens are never deleted, and records of the audit never changed.
GRANT {worker} TO {server};
GRANT INSERT, UPDATE, DELETE ON {schema}.pauses, {schema}.backpressure, {schema}.saved_searches, {schema}.schedules TO {server};
GRANT INSERT ON {schema}.replays TO {server};
GRANT INSERT, UPDATE ON {schema}.settings TO {server};
GRANT SELECT, INSERT ON {schema}.audit TO {server};
GRANT SELECT, INSERT, UPDATE (last_used_at, revoked_at) ON {schema}.api_tokens TO {server};
