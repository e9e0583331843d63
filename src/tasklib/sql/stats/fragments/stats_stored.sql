ON CONFLICT (span, start, name, queue, level, outcome, reason, worker) DO UPDATE
    SET count = stat.count + EXCLUDED.count,
        seconds = stat.seconds + EXCLUDED.seconds,
        waited = stat.waited + EXCLUDED.waited,
        buckets = {schema.}tasklib_added(stat.buckets, EXCLUDED.buckets),
        waits = {schema.}tasklib_added(stat.waits, EXCLUDED.waits)
