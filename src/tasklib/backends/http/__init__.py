"""Through a TaskLib server, from the worker's end: the worker protocol of docs/reference/worker-protocol.md."""
