"""Where a worker's tasks come from and where their results go: PostgreSQL itself, or a TaskLib server over HTTP."""
