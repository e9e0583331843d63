"""Django's default connection on a database of ours, for pages that show Django code in a few lines."""

from __future__ import annotations

from psycopg.conninfo import conninfo_to_dict


def connect_django(url: str) -> None:
    """Point `django.db.connection` at this database, whatever other tests have configured in this process."""
    import django
    from django.conf import settings

    parts = conninfo_to_dict(url)
    names = {"dbname": "NAME", "host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}
    database = {ours: str(parts[theirs]) for theirs, ours in names.items() if parts.get(theirs)}
    database["ENGINE"] = "django.db.backends.postgresql"
    if not settings.configured:
        settings.configure(DATABASES={"default": database}, USE_TZ=True)
        django.setup()
    from django.db import connections

    connections["default"].close()
    connections.settings["default"] = connections.configure_settings({"default": database})["default"]
    del connections["default"]
