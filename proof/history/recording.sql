-- Every transition of a task, by whom, in which transaction. Only in databases made for this.
CREATE TABLE transitions (
    seq         bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    xid         xid8        NOT NULL DEFAULT pg_current_xact_id(),
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    by          text        NOT NULL DEFAULT current_setting('application_name'),
    task        uuid        NOT NULL,
    old_state   text,
    new_state   text,
    old_token   bigint,
    new_token   bigint,
    worker      text,
    retry_count integer,
    max_retries integer,
    crash_count integer,
    wrote_token bigint,
    -- It waits at a gate of its flow.
    at_gate     boolean,
    -- A durable task has given its slot back, which forgets its crashes.
    suspended   boolean,
    -- Its cancel had been requested: it was not cancelled by a gate.
    requested   boolean,
    -- For limits: when the transaction began, which ones were over by then, and when a new task is due.
    began       timestamptz NOT NULL DEFAULT now(),
    after       xid8        NOT NULL DEFAULT pg_snapshot_xmin(pg_current_snapshot()),
    due         timestamptz
);

-- Tasks that a gate let through, each time it did.
CREATE TABLE releases (seq bigint GENERATED ALWAYS AS IDENTITY, task uuid NOT NULL, gate uuid NOT NULL);

CREATE FUNCTION record_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO transitions (task, new_state, new_token, worker, retry_count, max_retries, crash_count, at_gate,
                             due)
    SELECT id, state, lease_token, worker_id, retry_count, max_retries, crash_count, waits_for IS NOT NULL, scheduled_at
    FROM new_rows;
    RETURN NULL;
END
$$;

CREATE FUNCTION record_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO transitions (task, old_state, new_state, old_token, new_token, worker,
                             retry_count, max_retries, crash_count, wrote_token, at_gate, suspended,
                             requested)
    SELECT n.id, o.state, n.state, o.lease_token, n.lease_token, COALESCE(n.worker_id, o.worker_id),
           n.retry_count, n.max_retries, n.crash_count,
           -- The attempt writes its own token into its result: it must be the one that held the lease.
           CASE WHEN n.state = 'completed' AND o.state <> 'completed' THEN (n.result ->> 'token')::bigint END,
           n.waits_for IS NOT NULL,
           o.state = 'running' AND n.state IN ('pending', 'cancelled') AND n.awaited_signals IS NOT NULL,
           o.cancel_requested_at IS NOT NULL
    FROM old_rows AS o JOIN new_rows AS n USING (id)
    WHERE (o.state, o.lease_token, o.worker_id) IS DISTINCT FROM (n.state, n.lease_token, n.worker_id);
    INSERT INTO releases (task, gate)
    SELECT n.id, o.waits_for
    FROM old_rows AS o JOIN new_rows AS n USING (id)
    WHERE o.waits_for IS NOT NULL AND n.waits_for IS NULL;
    RETURN NULL;
END
$$;

CREATE FUNCTION record_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO transitions (task, old_state, old_token) SELECT id, state, lease_token FROM old_rows;
    RETURN NULL;
END
$$;

CREATE TRIGGER zz_record_insert AFTER INSERT ON tasks
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION record_insert();
CREATE TRIGGER zz_record_update AFTER UPDATE ON tasks
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION record_update();
CREATE TRIGGER zz_record_delete AFTER DELETE ON tasks
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION record_delete();

-- Who led, in which term.
CREATE TABLE terms (seq bigint GENERATED ALWAYS AS IDENTITY, at timestamptz DEFAULT clock_timestamp(),
                    holder text, old_term bigint, term bigint);

CREATE FUNCTION record_term() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO terms (holder, term) VALUES (NEW.holder, NEW.term);
    ELSIF (OLD.holder, OLD.term) IS DISTINCT FROM (NEW.holder, NEW.term) THEN
        INSERT INTO terms (holder, old_term, term) VALUES (NEW.holder, OLD.term, NEW.term);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER zz_record_term AFTER INSERT OR UPDATE ON leadership FOR EACH ROW EXECUTE FUNCTION record_term();

-- What transactional tasks, and submissions in a transaction, leave behind.
CREATE TABLE ledger (task uuid NOT NULL, token bigint NOT NULL);
CREATE TABLE outbox (task uuid NOT NULL);

-- For the programs that watch the run.
CREATE INDEX transitions_claims ON transitions (worker, seq) WHERE new_state = 'running';
CREATE INDEX transitions_submitted ON transitions (seq) WHERE old_state IS NULL;

-- Every write to a schedule that concerns its slots: the stretch from the old next slot up to the new one was decided in
-- this transaction, by the rule that held before it.
CREATE TABLE schedule_moves (
    seq         bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    xid         xid8        NOT NULL DEFAULT pg_current_xact_id(),
    at          timestamptz NOT NULL DEFAULT now(),
    by          text        NOT NULL DEFAULT current_setting('application_name'),
    schedule    text        NOT NULL,
    rule        jsonb,
    new_rule    jsonb,
    old_next    timestamptz,
    new_next    timestamptz,
    waiting     timestamptz,
    was_stopped boolean,
    is_stopped  boolean
);

CREATE FUNCTION record_schedule() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO schedule_moves (schedule, rule, new_rule, old_next, new_next, waiting, was_stopped, is_stopped)
    VALUES (COALESCE(NEW.name, OLD.name), OLD.spec,
            CASE WHEN NEW.spec IS DISTINCT FROM OLD.spec THEN NEW.spec END, OLD.next_slot, NEW.next_slot,
            NEW.waiting_slot, OLD.paused_at IS NOT NULL OR OLD.retired_at IS NOT NULL,
            CASE WHEN TG_OP <> 'DELETE' THEN NEW.paused_at IS NOT NULL OR NEW.retired_at IS NOT NULL END);
    RETURN NULL;
END
$$;

CREATE TRIGGER zz_record_schedule AFTER INSERT OR UPDATE OR DELETE ON schedules
    FOR EACH ROW EXECUTE FUNCTION record_schedule();

-- Every decision about a gate: what it had counted when it opened, failed, or stopped being failed.
CREATE TABLE gate_moves (seq bigint GENERATED ALWAYS AS IDENTITY, gate uuid NOT NULL, move text NOT NULL,
                         sealed boolean, completed bigint, failed bigint, excused bigint);

CREATE FUNCTION record_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO gate_moves (gate, move, sealed, completed, failed, excused)
    SELECT n.id, CASE WHEN o.opened_at IS NULL AND n.opened_at IS NOT NULL THEN 'opened'
                      WHEN o.opened_at IS NOT NULL AND n.opened_at IS NULL THEN 'closed'
                      WHEN o.failed_at IS NULL THEN 'failed' ELSE 'restored' END,
           n.sealed, n.completed, n.failed, n.excused
    FROM old_rows AS o JOIN new_rows AS n USING (id)
    WHERE (o.opened_at IS NULL) <> (n.opened_at IS NULL) OR (o.failed_at IS NULL) <> (n.failed_at IS NULL);
    RETURN NULL;
END
$$;

CREATE TRIGGER zz_record_gate AFTER UPDATE ON gates
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION record_gate();

-- Every record of a durable task, with the token that the task had then, and every record that was forgotten.
CREATE TABLE step_moves (seq bigint GENERATED ALWAYS AS IDENTITY, xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
                         task uuid NOT NULL, kind text NOT NULL, name text NOT NULL, is_new boolean NOT NULL,
                         token bigint, held bigint, is_signal boolean);

CREATE FUNCTION record_steps() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO step_moves (task, kind, name, is_new, token, held, is_signal)
    SELECT step.task, step.kind, step.name, true, step.token,
           (SELECT lease_token FROM tasks WHERE tasks.id = step.task AND tasks.state = 'running'),
           step.kind = 'signal' AND step.result ? 'value'
    FROM new_rows AS step;
    RETURN NULL;
END
$$;

CREATE FUNCTION record_steps_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO step_moves (task, kind, name, is_new) SELECT task, kind, name, false FROM old_rows;
    RETURN NULL;
END
$$;

CREATE TRIGGER zz_record_steps AFTER INSERT ON steps
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION record_steps();
CREATE TRIGGER zz_record_steps_gone AFTER DELETE ON steps
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION record_steps_gone();

-- Every time a signal was consumed.
CREATE TABLE signal_moves (task uuid NOT NULL, signal bigint NOT NULL, is_consumed boolean NOT NULL);

CREATE FUNCTION record_signals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO signal_moves (task, signal, is_consumed)
    SELECT n.task, n.seq, n.consumed_at IS NOT NULL
    FROM old_rows AS o JOIN new_rows AS n USING (task, seq)
    WHERE o.consumed_at IS DISTINCT FROM n.consumed_at;
    RETURN NULL;
END
$$;

CREATE TRIGGER zz_record_signals AFTER UPDATE ON signals
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION record_signals();

-- What transactional steps leave behind.
CREATE TABLE step_ledger (task uuid NOT NULL, step text NOT NULL);

-- Every change of a limit, numbered like the transitions: a claim holds the row's lock while it counts.
CREATE TABLE limit_moves (seq bigint NOT NULL, limit_name text NOT NULL, max_running integer, rate double precision,
                          per double precision, burst integer);

CREATE FUNCTION record_limit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO limit_moves
    SELECT nextval(pg_get_serial_sequence('transitions', 'seq')), COALESCE(NEW.name, OLD.name), NEW.max_running,
           NEW.rate, NEW.per, NEW.burst;
    RETURN NULL;
END
$$;

CREATE TRIGGER zz_record_limit AFTER INSERT OR UPDATE OR DELETE ON limits FOR EACH ROW EXECUTE FUNCTION record_limit();

-- Every time a limit is held because an attempt was throttled, and every move of a breaker with its probes; numbered in
-- the same way.
CREATE TABLE limit_blocks (seq bigint NOT NULL, limit_name text NOT NULL, key text NOT NULL, until timestamptz NOT NULL);
CREATE TABLE breaker_moves (seq bigint NOT NULL, at timestamptz NOT NULL, name text NOT NULL, state text NOT NULL,
                            probes uuid[] NOT NULL);

CREATE FUNCTION record_block() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO limit_blocks
    SELECT nextval(pg_get_serial_sequence('transitions', 'seq')), NEW.limit_name, NEW.key, NEW.blocked_until;
    RETURN NULL;
END
$$;

CREATE TRIGGER zz_record_block AFTER INSERT OR UPDATE OF blocked_until ON limit_states
    FOR EACH ROW WHEN (NEW.blocked_until IS NOT NULL) EXECUTE FUNCTION record_block();

CREATE FUNCTION record_breaker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO breaker_moves
    SELECT nextval(pg_get_serial_sequence('transitions', 'seq')), clock_timestamp(), NEW.name, NEW.state, NEW.probe_ids;
    RETURN NULL;
END
$$;

CREATE TRIGGER zz_record_breaker AFTER INSERT OR UPDATE ON breakers FOR EACH ROW EXECUTE FUNCTION record_breaker();
