"""The worker: what claims tasks, runs them and stores what became of them."""
