"""A serial queue while the workers that run its tasks are killed, one after the other."""
