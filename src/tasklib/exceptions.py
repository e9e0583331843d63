"""The errors of TaskLib, under the name that many libraries have for them; they are defined in `tasklib.errors`."""

from tasklib.errors import *  # noqa: F403
from tasklib.errors import __all__ as __all__
