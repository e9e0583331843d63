"""The paths, one module for each thing they are about. Each has a `router`, which `app.py` lists."""
