"""Running queries: what a query is, how connections are opened, and one runner for each colour."""
