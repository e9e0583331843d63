SELECT name, setting FROM pg_settings WHERE name = ANY (%(names)s::text[])
