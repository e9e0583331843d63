-- Connections of the whole server, and how far this database is from the end of its transaction ids.
SELECT (SELECT sum(numbackends) FROM pg_stat_database)::integer,
       (SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database())
