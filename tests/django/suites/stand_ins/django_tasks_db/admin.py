class DBTaskResultAdmin:
    """Not ours."""
