failures = (declared ->> 'failures')::float8, at_least = (declared ->> 'at_least')::int,
        within = (declared ->> 'within')::float8, pause = (declared ->> 'pause')::float8,
        probes = (declared ->> 'probes')::int
