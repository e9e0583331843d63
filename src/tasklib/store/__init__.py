"""What is asked of the database: pure functions that turn arguments into a `Query`."""
