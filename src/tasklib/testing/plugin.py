"""The pytest plugin under a name inside the package, for `-p tasklib.testing.plugin`. See `_tasklib_pytest`."""

from _tasklib_pytest import *  # noqa: F403
