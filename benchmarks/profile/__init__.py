"""Where each microsecond of a no-op task goes, in one worker and in the server.

__main__   the command line
stopwatch  CPU time by stage, each moment counted once
stages     which functions of a worker are which stage
drain      a real worker over tasks submitted beforehand
parts      what one task takes, part by part: too short to be timed while it runs among others
report     the table
"""
