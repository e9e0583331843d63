-- What texts this database can store, and its name.
SELECT current_setting('server_encoding'), current_database()
