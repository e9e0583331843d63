"""Where task functions run: on the loop, in threads, in child processes."""
