"""Problems of a TaskLib installation and its PostgreSQL, what they mean, and what to do: `tasklib doctor`.

    with Client() as client:
        for finding in examine(client):
            print(finding.severity, finding.seen, finding.action)

Each check is a file with a `look`: a call like those of the clients, for sync and async callers. `checks.py` lists
them, `run.py` makes them.
"""
