-- Who may come in over HTTP. Of a token only its SHA-256 is kept: whoever reads this table can't use it as a key.
-- Rows are never deleted, so that a revoked token still has a name in the audit.
CREATE TABLE {schema.}api_tokens (
    id           uuid        NOT NULL DEFAULT {schema.}tasklib_new_id(),
    name         text        NOT NULL,
    prefix       text        COLLATE "C" NOT NULL,
    hash         bytea       NOT NULL,
    roles        text[]      NOT NULL,
    queues       text[],
    created_at   timestamptz NOT NULL DEFAULT now(),
    created_by   text        NOT NULL,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    CONSTRAINT api_tokens_pkey PRIMARY KEY (id),
    CONSTRAINT api_tokens_prefix_once UNIQUE (prefix),
    CONSTRAINT api_tokens_name_not_empty CHECK (name <> ''),
    CONSTRAINT api_tokens_hash_is_sha256 CHECK (length(hash) = 32),
    CONSTRAINT api_tokens_roles_known
        CHECK (cardinality(roles) > 0 AND roles <@ '{viewer,submitter,worker,operator,admin}'::text[]),
    CONSTRAINT api_tokens_queues_not_empty CHECK (cardinality(queues) > 0),
    CONSTRAINT api_tokens_times_in_range
        CHECK (least(created_at, expires_at, revoked_at, last_used_at) >= '0001-01-03 00:00:00+00'
               AND greatest(created_at, expires_at, revoked_at, last_used_at) < '9999-12-30 00:00:00+00')
);

-- Who changed what, written by the statement that changed it.
CREATE TABLE {schema.}audit (
    id      bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    at      timestamptz NOT NULL DEFAULT now(),
    actor   text        NOT NULL,
    action  text        NOT NULL,
    target  text,
    details jsonb       NOT NULL DEFAULT '{}',
    CONSTRAINT audit_pkey PRIMARY KEY (id),
    CONSTRAINT audit_details_is_object CHECK (jsonb_typeof(details) = 'object')
);

-- What happened to this task, by whom?
CREATE INDEX audit_target ON {schema.}audit (target, id) WHERE target IS NOT NULL;

CREATE FUNCTION {schema.}tasklib_keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit is only ever added to: % is refused', TG_OP
        USING ERRCODE = 'object_not_in_prerequisite_state';
END
$$;

CREATE TRIGGER audit_keep BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema.}audit
    FOR EACH STATEMENT EXECUTE FUNCTION {schema.}tasklib_keep_audit();

-- Whose task it is: the id of the token it was submitted with; null if it didn't come over HTTP.
ALTER TABLE {schema.}tasks ADD COLUMN submitted_by text;

-- Somebody's own tasks, the newest first. Tasks that didn't come over HTTP are not in it, and pay nothing for it.
CREATE INDEX tasks_submitted_by ON {schema.}tasks (submitted_by, id) WHERE submitted_by IS NOT NULL;

-- The token a worker registered with; null if it came over PostgreSQL.
ALTER TABLE {schema.}worker_registrations ADD COLUMN token_id uuid;
