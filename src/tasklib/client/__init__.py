"""Submitting and looking up tasks: the calls, their two colours, and the module-level functions."""
