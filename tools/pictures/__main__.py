"""The pictures of the README: `python -m tools.pictures` draws the chart; with `--film` it also films the demo,
with `--screens` it portrays the dashboard for its pages, in Chromium.

The chart is made of benchmarks/results. The film is `tasklib demo` in a terminal, played for a minute.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.pictures import film, speeds, terminal

PICTURES = Path(__file__).parent.parent.parent / "docs/pictures"
LABEL = "tasklib demo in a terminal: priorities, retries, a hung task killed, a killed worker's tasks taken over"


def main() -> None:
    (PICTURES / "speed.svg").write_text(speeds.svg())
    if "--film" in sys.argv:
        command = [str(Path(sys.executable).parent / "tasklib"), "demo"]
        shown = terminal.frames(terminal.record(command))
        (PICTURES / "demo.svg").write_text(film.svg(shown, "tasklib demo", LABEL))
    if "--screens" in sys.argv:
        from tools.pictures import screens

        screens.draw()


if __name__ == "__main__":
    main()
