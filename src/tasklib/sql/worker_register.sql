INSERT INTO {schema.}workers (id, queues, names, capabilities, capacity, version, host, pid)
VALUES (%(id)s, %(queues)s::text[], %(names)s::text[], %(capabilities)s::text[], %(capacity)s, %(version)s, %(host)s,
        %(pid)s)
