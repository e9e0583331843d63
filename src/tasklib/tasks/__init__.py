"""Task functions: registration, validation of arguments, and the context of a running task."""
