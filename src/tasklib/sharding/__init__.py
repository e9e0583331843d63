"""One logical TaskLib over several shards: which shard, how answers are merged, and what is said of missing ones."""
