"""What a reader has to walk through: files and functions of src/tasklib that each path enters, counted by running it.

python -m tools.walk                            # a table
python -m tools.walk --paths submit --list      # one path, with the functions in the order they are first entered
python -m tools.walk --source OTHER/src --json  # the same script on another checkout

    measuring.py    runs each path on a real PostgreSQL
    programs.py     the client and workers that are measured, each in a process of its own
    recorder/       what every measured process and its children load: it logs each function they enter
    log.py          reads that log
    source.py       what can be counted without running: lines, long files and functions, names defined twice
    duplicates.py   blocks of code that occur twice
"""
