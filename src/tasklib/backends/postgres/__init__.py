"""Claim, sleep, settle and heartbeat on PostgreSQL: for one worker, or for the many that a server stands in for."""
