"""The errors of TaskLib under the name by which many programs import a library's errors.

They are defined in `tasklib.errors`, and a star import is the one that can miss none of them.
"""

from tasklib.errors import *  # noqa: F403
from tasklib.errors import __all__ as __all__
