"""Installing the systems from their registries, each into an environment of its own in the lab."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.lab import ROOT, Lab

PYTHON_PACKAGES: dict[str, list[str]] = {
    "tasklib": [f"-e{ROOT}", "asyncpg", "uvloop"],
    "limit": ["asyncpg", "psycopg[binary]", "orjson", "uvloop"],
    "procrastinate": ["procrastinate", "psycopg[binary]", "uvloop"],
    "pgqueuer": ["pgqueuer[asyncpg,cli]", "uvloop"],
    "oban": ["oban", "uvloop"],
    "chancy": ["chancy", "psycopg[binary]", "uvloop"],
    "saq": ["saq[postgres,hiredis]", "psycopg[binary]", "uvloop"],
    "dbos": ["dbos"],
    "absurd": ["absurd-sdk", "absurdctl", "psycopg[binary]", "uvloop"],
    "awa": ["awa-pg", "psycopg[binary]", "uvloop"],
    "celery": ["celery[redis]", "hiredis"],
    "dramatiq": ["dramatiq[redis]", "hiredis"],
    "rq": ["rq", "hiredis"],
    "taskiq": ["taskiq", "taskiq-redis", "hiredis", "uvloop"],
    "arq": ["arq[hiredis]", "uvloop"],
}
NODE_PACKAGES = ["graphile-worker", "pg-boss@10", "pg"]
INSTALL_SECONDS = 600


class NotInstalled(Exception):
    """An environment could not be made; the message is the installer's."""


def install(lab: Lab, python: Path | None = None, only: set[str] | None = None) -> dict[str, str]:
    """Install what is missing, whatever fails on the way; returns what became of each environment."""
    lab.directory.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    for environment in (*PYTHON_PACKAGES, "node"):
        if only and environment not in only:
            continue
        try:
            outcomes[environment] = _install_one(lab, environment, python or Path(sys.executable))
        except (NotInstalled, OSError, subprocess.TimeoutExpired) as e:
            outcomes[environment] = f"NOT INSTALLED: {e}"
        print(f"  {environment:15} {outcomes[environment]}", flush=True)
    return outcomes


def _install_one(lab: Lab, environment: str, python: Path) -> str:
    if environment == "node":
        return _install_node(lab)
    packages = PYTHON_PACKAGES[environment]
    if _has_all(lab, environment, packages):
        return "there already"
    target = lab.directory / environment
    uv = _uv(lab, python)
    if not (target / "bin" / "python").exists():
        _run([uv, "venv", "--python", python, target] if uv else [python, "-m", "venv", target])
    ours = target / "bin" / "python"
    _run([uv, "pip", "install", "--python", ours, *packages] if uv else [ours, "-m", "pip", "install", *packages])
    return "installed"


def _has_all(lab: Lab, environment: str, packages: list[str]) -> bool:
    """Also true of an environment that another program has made in the same place."""
    if not (lab.directory / environment / "bin" / "python").exists():
        return False
    names = ["tasklib-pg" if package.startswith("-e") else package.partition("[")[0] for package in packages]
    return lab.versions(environment, *names).keys() >= set(names)


def _uv(lab: Lab, python: Path) -> Path | None:
    """uv makes environments in a second, so it is installed for the others; pip does it too, where uv can't be had."""
    if found := shutil.which("uv"):
        return Path(found)
    boot = lab.directory / "boot"
    if not (boot / "bin" / "uv").exists():
        try:
            _run([python, "-m", "venv", boot])
            _run([boot / "bin" / "python", "-m", "pip", "install", "uv"])
        except NotInstalled:
            return None
    return boot / "bin" / "uv"


def _install_node(lab: Lab) -> str:
    names = [package.partition("@")[0] for package in NODE_PACKAGES]
    if all(lab.node_version(name) for name in names):
        return "there already"
    if not (npm := shutil.which("npm")):
        raise NotInstalled("there is no npm here")
    directory = lab.directory / "node"
    directory.mkdir(exist_ok=True)
    _run([npm, "install", "--prefix", directory, "--no-fund", "--no-audit", *NODE_PACKAGES])
    return "installed"


def _run(command: list[str | Path]) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise NotInstalled(" ".join(said[-3:])[:500])
