"""The lab: a directory outside the tree with an environment for each system, and what every run may leave behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
ADAPTERS = Path(__file__).parent / "adapters"
# Without bytecode every start of an adapter would compile its libraries anew.
MISLEADING = ("PYENV_VERSION", "VIRTUAL_ENV", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")

_ASK_VERSIONS = """
import importlib.metadata, json, platform, sys
versions = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(versions))
"""


def default_directory() -> Path:
    return Path(tempfile.gettempdir()) / "tasklib-bench"


@dataclass(frozen=True)
class Lab:
    """Knows where things are. `own_python` stands in for our own environments where they aren't installed."""

    directory: Path
    own_python: Path = Path(sys.executable)

    @property
    def run_dir(self) -> Path:
        """Counts, moments and logs of the measurement under way; another driver has its own."""
        return self.directory / f"run-{os.getpid()}"

    @property
    def node_packages(self) -> Path:
        return self.directory / "node" / "node_modules"

    def python(self, environment: str) -> Path | None:
        """The interpreter of an environment, if there is one."""
        found = self.directory / environment / "bin" / "python"
        if found.exists():
            return found
        # The driver's interpreter has TaskLib and the yardsticks' drivers, being the one of the project.
        return self.own_python if environment in ("tasklib", "limit") else None

    def versions(self, environment: str, *distributions: str) -> dict[str, str]:
        """Which of these are installed in a Python environment, and its Python's version."""
        python = self.python(environment)
        return _versions(python, *distributions) if python else {}

    def node_version(self, package: str) -> str | None:
        manifest = self.node_packages / package / "package.json"
        if not manifest.exists():
            return None
        version: str = json.loads(manifest.read_text())["version"]
        return version

    def process_environment(self) -> dict[str, str]:
        """Ours without what would lead another interpreter astray, and with TaskLib from this checkout."""
        kept = {name: value for name, value in os.environ.items() if name not in MISLEADING}
        return kept | {"PYTHONPATH": f"{ADAPTERS}{os.pathsep}{ROOT / 'src'}"}


def _versions(python: Path, *distributions: str) -> dict[str, str]:
    answer = subprocess.run([python, "-c", _ASK_VERSIONS, *distributions], capture_output=True, text=True)
    return dict(json.loads(answer.stdout)) if answer.returncode == 0 else {}
