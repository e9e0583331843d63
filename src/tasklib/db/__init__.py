"""Running queries: what a query is, how connections are opened, and the synchronous and the asynchronous runner."""
