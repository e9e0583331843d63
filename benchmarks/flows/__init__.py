"""What flows and durable functions cost."""
