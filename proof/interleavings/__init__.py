"""Two and three SQL sessions on one task, stepped through every order of their statements and commits.

Each session runs one of our own statements in a transaction: a step executes it, another commits. So a statement may
find a row that another session has changed and not yet committed; it waits or steps over it, and the order goes on
without it until it is let through. After every order the history checker judges what became of the task.
"""
