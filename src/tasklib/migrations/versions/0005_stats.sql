-- What happened, as it is told: by workers every few seconds, by the statement itself where no worker is part of it.
-- Rows are only ever added, so nobody waits for anybody; the leader moves them into `stats`. The key is for logical
-- replication, which refuses to delete from a table without one.
CREATE TABLE {schema.}stats_deltas (
    id      bigint           NOT NULL GENERATED ALWAYS AS IDENTITY,
    at      timestamptz      NOT NULL DEFAULT now(),
    name    text             COLLATE "C" NOT NULL DEFAULT '',
    queue   text             COLLATE "C" NOT NULL DEFAULT '',
    level   text             COLLATE "C" NOT NULL DEFAULT '',
    outcome text             COLLATE "C" NOT NULL,
    reason  text             COLLATE "C" NOT NULL DEFAULT '',
    count   bigint           NOT NULL,
    seconds double precision NOT NULL DEFAULT 0,
    waited  double precision NOT NULL DEFAULT 0,
    buckets bigint[]         NOT NULL DEFAULT '{}',
    waits   bigint[]         NOT NULL DEFAULT '{}',
    CONSTRAINT stats_deltas_pkey PRIMARY KEY (id)
);

-- The same by time: spans of 60, 600 and 3600 seconds for charts, the old ones in longer spans and then forgotten.
-- Span 0 is all that ever was, without names and queues; with the deltas it is the exact total.
CREATE TABLE {schema.}stats (
    span    integer          NOT NULL,
    start   timestamptz      NOT NULL,
    name    text             COLLATE "C" NOT NULL,
    queue   text             COLLATE "C" NOT NULL,
    level   text             COLLATE "C" NOT NULL,
    outcome text             COLLATE "C" NOT NULL,
    reason  text             COLLATE "C" NOT NULL,
    count   bigint           NOT NULL,
    seconds double precision NOT NULL,
    waited  double precision NOT NULL,
    buckets bigint[]         NOT NULL,
    waits   bigint[]         NOT NULL,
    CONSTRAINT stats_pkey PRIMARY KEY (span, start, name, queue, level, outcome, reason)
) WITH (fillfactor = 70);

-- How deep each queue was at each level, at the leader's last look in each minute.
CREATE TABLE {schema.}depths (
    minute             timestamptz      NOT NULL,
    queue              text             COLLATE "C" NOT NULL,
    level              text             COLLATE "C" NOT NULL,
    depth              bigint           NOT NULL,
    capped             boolean          NOT NULL,
    oldest_age_seconds double precision NOT NULL,
    CONSTRAINT depths_pkey PRIMARY KEY (minute, queue, level)
);

-- The last flush of a worker's stats that was counted: one whose answer was lost is sent again, and counts once.
ALTER TABLE {schema.}worker_registrations ADD COLUMN counted bigint NOT NULL DEFAULT 0;

-- Two histograms in one.
CREATE FUNCTION {schema.}tasklib_added(one bigint[], other bigint[]) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT COALESCE(array_agg(COALESCE(a, 0) + COALESCE(b, 0) ORDER BY place), '{}')
    FROM unnest(one, other) WITH ORDINALITY AS both_of (a, b, place)
$$;
