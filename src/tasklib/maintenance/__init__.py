"""Maintenance: one file per duty, one periodic loop for all of them."""
