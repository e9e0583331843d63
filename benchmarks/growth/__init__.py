"""What a task costs the server, against everything that grows: backlog, history, lanes, workers, payload.

__main__    the command line
dimensions  what grows, and how far
scene       one state of the table, and what the worker that claims from it serves
measuring   claiming and completing 500 tasks again and again, by TaskLib's own statements
crowd       the same by many workers at once
report      the figures as a table
chart       the figures as a picture
"""
