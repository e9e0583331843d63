"""Schemas that a Citus cluster distributes: moved between its nodes under load, and compared in speed."""
