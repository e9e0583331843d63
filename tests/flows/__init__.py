"""Flows: gates, joins and graphs."""
