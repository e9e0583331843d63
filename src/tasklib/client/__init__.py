"""Submitting and looking up tasks: the calls, the sync and the async client, and the module-level functions."""
