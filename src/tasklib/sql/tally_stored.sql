ON CONFLICT (span, start, name, queue, level, outcome, reason) DO UPDATE
    SET count = tally.count + EXCLUDED.count,
        seconds = tally.seconds + EXCLUDED.seconds,
        waited = tally.waited + EXCLUDED.waited,
        buckets = {schema.}tasklib_added(tally.buckets, EXCLUDED.buckets),
        waits = {schema.}tasklib_added(tally.waits, EXCLUDED.waits)
