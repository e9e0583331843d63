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
    wrote_token bigint
);

CREATE FUNCTION record_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO transitions (task, new_state, new_token, worker, retry_count, max_retries, crash_count)
    SELECT id, state, lease_token, worker_id, retry_count, max_retries, crash_count FROM new_rows;
    RETURN NULL;
END
$$;

CREATE FUNCTION record_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO transitions (task, old_state, new_state, old_token, new_token, worker,
                             retry_count, max_retries, crash_count, wrote_token)
    SELECT n.id, o.state, n.state, o.lease_token, n.lease_token, COALESCE(n.worker_id, o.worker_id),
           n.retry_count, n.max_retries, n.crash_count,
           -- The attempt writes its own token into its result: it must be the one that held the lease.
           CASE WHEN n.state = 'completed' AND o.state <> 'completed' THEN (n.result ->> 'token')::bigint END
    FROM old_rows AS o JOIN new_rows AS n USING (id)
    WHERE (o.state, o.lease_token, o.worker_id) IS DISTINCT FROM (n.state, n.lease_token, n.worker_id);
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
