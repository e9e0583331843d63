max_running = (declared ->> 'max_running')::int, rate = (declared ->> 'rate')::float8,
        per = (declared ->> 'per')::float8, burst = (declared ->> 'burst')::int, serial = declared ->> 'serial',
        weight = (declared ->> 'weight')::int, may_burst = (declared ->> 'may_burst')::boolean
