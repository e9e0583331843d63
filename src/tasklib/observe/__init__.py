"""Making a worker's events visible: in the terminal and in the log."""
