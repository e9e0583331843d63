"""Two PostgreSQL servers under Patroni, etcd and HAProxy on one machine: the primary is changed, killed, cut off."""
