"""The command `tasklib`, ended by the kernel when the process that started it ends, however that happens.

python -m tasklib.bench.child worker tasklib.bench.tasks
"""

from __future__ import annotations

import ctypes
import runpy
import signal

_PR_SET_PDEATHSIG = 1


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    # By its name, as a user would: the command line lies above us.
    runpy.run_module("tasklib", run_name="__main__")


if __name__ == "__main__":
    main()
