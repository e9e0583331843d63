"""A worker killed while it drains: what became of the tasks it held."""
