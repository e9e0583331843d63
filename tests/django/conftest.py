"""The project has tests of its own, which Django runs."""

collect_ignore = ["project", "suites"]
