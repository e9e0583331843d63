"""The files of docs/how-to/deploy.md: valid by their schemas, true to the commands, and the image's steps run."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from proof.ports import free_port
from tasklib import Config
from tasklib.cli.app import app
from tests.docs.pages import ROOT

DOCKER, KUBERNETES, SYSTEMD = (ROOT / "examples" / name for name in ("docker", "kubernetes", "systemd"))
UNITS = sorted(SYSTEMD.glob("*.service"))
MANIFESTS = sorted(KUBERNETES.glob("*.yaml"))
INSTALLED = "comes with the extra `dev`, which `make test` installs"


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def compose() -> dict[str, Any]:
    [found] = documents(DOCKER / "compose.yaml")
    return found


def instruction(name: str) -> list[str]:
    """The arguments of an instruction of the Dockerfile, continued lines joined."""
    text = (DOCKER / "Dockerfile").read_text().replace("\\\n", " ")
    return re.findall(rf"^{name} +(.*)$", text, flags=re.MULTILINE)


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command of TaskLib in these files."""
    yield "Dockerfile", json.loads(instruction("CMD")[0])
    for name, service in compose()["services"].items():
        if "command" in service:
            yield name, service["command"]
    for path in MANIFESTS:
        for document in documents(path):
            for container in document["spec"].get("template", {}).get("spec", {}).get("containers", []):
                yield path.name, container["command"]
    for path in UNITS:
        for line in re.findall(r"^ExecStart(?:Pre)?=(.*)$", path.read_text(), flags=re.MULTILINE):
            yield path.name, ["tasklib", *shlex.split(line)[1:]]
    for line in (DOCKER / "Procfile").read_text().splitlines():
        yield "Procfile", shlex.split(line.partition(": ")[2])


@pytest.mark.parametrize(("where", "words"), [pytest.param(*each, id=each[0]) for each in commands()])
def test_every_command_and_option_exists(where: str, words: list[str]) -> None:
    assert words[0] == "tasklib"
    command: Any = typer.main.get_command(app)
    command = command.commands[words[1]]
    known = {option for parameter in command.params for option in parameter.opts}
    assert [word for word in words[2:] if word.startswith("-") and word not in known] == []


def test_the_compose_file_is_valid_by_the_specification() -> None:
    pytest.importorskip("check_jsonschema", reason=INSTALLED)
    import jsonschema

    vendored = resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(compose(), json.loads(vendored.read_text()))


def test_the_compose_file_has_the_whole_fleet() -> None:
    services = compose()["services"]
    assert set(services) == {"db", "migrate", "worker", "server", "prometheus", "grafana"}
    assert services["worker"]["deploy"]["replicas"] == 2
    for name in ("worker", "server"):
        assert services[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    for volume in [v for s in services.values() for v in s.get("volumes", []) if v.startswith("./")]:
        path = DOCKER / volume.partition(":")[0]
        assert path.exists() or path.name == "tasklib.json", "the page says how to make that one"


@pytest.mark.parametrize("path", [p for p in MANIFESTS if p.name != "keda.yaml"], ids=lambda p: p.name)
def test_a_manifest_is_valid_by_the_schemas_of_kubernetes(path: Path) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason=INSTALLED)
    for document in documents(path):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_containers_are_not_root_and_stop_in_their_own_time() -> None:
    pods = [d["spec"]["template"]["spec"] for path in MANIFESTS for d in documents(path) if "template" in d["spec"]]
    assert len(pods) == 3
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == int(instruction("USER")[0])
        if pod.get("restartPolicy") != "Never":
            assert pod["terminationGracePeriodSeconds"] > Config("postgresql://").shutdown_grace_seconds
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(pod["containers"][0])


def test_the_scaler_has_a_worker_for_each_slots_worth_of_backlog() -> None:
    [scaled] = documents(KUBERNETES / "keda.yaml")
    [worker] = documents(KUBERNETES / "worker.yaml")
    assert scaled["spec"]["scaleTargetRef"]["name"] == worker["metadata"]["name"]
    [trigger] = scaled["spec"]["triggers"]
    words = worker["spec"]["template"]["spec"]["containers"][0]["command"]
    slots = int(words[words.index("--concurrency") + 1])
    assert trigger["metadata"]["threshold"] == str(60 * slots)
    assert trigger["metadata"]["query"] == "sum(max by (queue) (queue_backlog_seconds))"
    assert "queue_backlog_seconds" in (ROOT / "src/tasklib/metrics/families.py").read_text()


@pytest.mark.parametrize("path", UNITS, ids=lambda p: p.name)
def test_a_unit_is_valid(path: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign] # configparser documents this way to keep case
    unit.read_string(path.read_text())
    assert set(unit.sections()) == {"Unit", "Service", "Install"}
    assert unit["Service"]["User"] == "app"
    assert int(unit["Service"]["TimeoutStopSec"]) > Config("postgresql://").shutdown_grace_seconds


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("path", UNITS, ids=lambda p: p.name)
def test_systemd_accepts_a_unit(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    for program in set(re.findall(r"^ExecStart(?:Pre)?=(\S+)", text, flags=re.MULTILINE)):
        text = text.replace(program, sys.executable)  # theirs is not installed here
    unit = tmp_path / path.name.replace("@.", "@1.")
    unit.write_text(text)
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A clean directory that other users may enter, which those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="tasklib-image-", ignore_cleanup_errors=True) as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


def ordinary_python() -> tuple[str, Any]:
    """An interpreter, and the options with which a process runs it as a user that is not root."""
    if os.geteuid() != 0:
        return sys.executable, {}
    as_user: Any = {"user": 65534, "group": 65534}
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        can_run = "import ensurepip, sys; assert sys.version_info >= (3, 11)"
        try:
            subprocess.run([python, "-c", can_run], cwd="/", check=True, capture_output=True, **as_user)
        except (OSError, subprocess.CalledProcessError):
            continue
        return python, as_user
    pytest.skip("no Python 3.11 here that a user other than root may run")


@pytest.mark.long
def test_the_steps_of_the_dockerfile_run_as_an_ordinary_user(config: Config, open_to_all: Path) -> None:
    python, as_user = ordinary_python()
    wheels, clean = open_to_all / "wheels", open_to_all / "image"
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(ROOT)]
    subprocess.run(pip, check=True, timeout=600)
    [wheel] = wheels.glob("*.whl")
    shutil.copytree(DOCKER, clean)
    named = (clean / "requirements.txt").read_text().strip()
    (clean / "requirements.txt").write_text(f"{named} @ file://{wheel}\n")
    if as_user:
        shutil.chown(clean, 65534, 65534)
    environment = {
        "PATH": f"{clean}/venv/bin:/usr/bin:/bin",
        "HOME": str(clean),
        "TASKLIB_DATABASE_URL": config.database_url,
    }
    if config.schema:
        environment["TASKLIB_SCHEMA"] = config.schema
    for step in instruction("RUN")[:2]:
        words = shlex.split(step.replace("/opt/venv", f"{clean}/venv"))
        words[0] = python if words[0] == "python" else words[0]
        subprocess.run(words, cwd=clean, env={**os.environ, "HOME": str(clean)}, check=True, timeout=900, **as_user)
    port = str(free_port())
    started = [word.replace("8080", port) for word in json.loads(instruction("CMD")[0])]
    probe = json.loads(instruction("HEALTHCHECK")[0].partition("CMD ")[2])
    probe[0], probe[2] = f"{clean}/venv/bin/python", probe[2].replace("8080", port)
    started[0] = f"{clean}/venv/bin/tasklib"
    worker = subprocess.Popen(started, cwd=clean, env=environment, **as_user)
    try:
        deadline = time.monotonic() + 120
        while subprocess.run(probe, env=environment, capture_output=True, **as_user).returncode:
            assert worker.poll() is None
            assert time.monotonic() < deadline
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
