"""Real servers, each in its own directory; processes talk over pipes, so that nothing waits by sleeping."""

import importlib.util
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tasklib.embedded import EmbeddedPostgres, EmbeddedPostgresError, accounts, default_data_dir
from tasklib.embedded.binaries import wheel_bin_dir
from tasklib.embedded.processes import start_time
from tasklib.errors import TaskLibError

SYSTEM_15 = Path("/usr/lib/postgresql/15/bin")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server under another account")

# Starts on the first line of its input, stops on the second; without a second it leaves that to atexit.
USER = """
import sys
from tasklib.embedded import EmbeddedPostgres
server = EmbeddedPostgres(sys.argv[1] if len(sys.argv) > 1 else None)
print("ready", flush=True)
sys.stdin.readline()
server.start()
print(server.postmaster_pid, server.url(), server.data_dir, flush=True)
if sys.stdin.readline():
    server.stop()
    print("stopped", flush=True)
"""


class User:
    """Another process that uses a server."""

    def __init__(self, *data_dir: Path) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, "-c", USER, *data_dir], env=environment, **pipes)
        assert self.hear() == "ready"

    def say(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        return self.process.stdout.readline().strip()

    def started(self) -> tuple[int, str, Path]:
        pid, url, data_dir = self.hear().split(maxsplit=2)
        return int(pid), url, Path(data_dir)

    def stop(self) -> None:
        self.say()
        assert self.hear() == "stopped"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def new_user() -> Iterator[Callable[..., User]]:
    users: list[User] = []

    def start(*data_dir: Path) -> User:
        users.append(User(*data_dir))
        return users[-1]

    yield start
    for user in users:
        user.kill()


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A directory to keep data in; for root, pytest's own is out of the server's reach."""
    directory = tmp_path / "kept data"
    yield directory
    shutil.rmtree((directory / "data").resolve(), ignore_errors=True)


@pytest.fixture(scope="module")
def kept_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a cluster, for the tests that need no fresh one."""
    directory = tmp_path_factory.mktemp("kept")
    EmbeddedPostgres(directory).start().stop()
    yield directory
    shutil.rmtree((directory / "data").resolve(), ignore_errors=True)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres() as server:
        yield server


def ask(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
    return row and row[0]


def run(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def is_alive(pid: int) -> bool:
    return start_time(pid) is not None


# ---- one server -------------------------------------------------------------------------------------------


def test_a_started_server_answers_at_its_url(server: EmbeddedPostgres) -> None:
    assert ask(server.url(), "SELECT 6 * 7") == 42
    assert str(ask(server.url(), "SHOW server_version")).startswith("18")
    assert ask(server.url(), "SHOW server_encoding") == "UTF8"


def test_a_server_also_listens_on_a_unix_socket(server: EmbeddedPostgres) -> None:
    socket_dir = ask(server.url(), "SHOW unix_socket_directories")
    assert ask(f"{server.url()}?host={socket_dir}", "SELECT inet_server_addr() IS NULL") is True


def test_a_wrong_password_is_refused(server: EmbeddedPostgres) -> None:
    port = ask(server.url(), "SHOW port")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(f"postgresql://postgres:guess@127.0.0.1:{port}/postgres")


def test_the_password_is_readable_by_its_owner_only(server: EmbeddedPostgres) -> None:
    secret = server.data_dir / "password"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.stat().st_uid == os.geteuid()
    assert secret.read_text() in server.url()


def test_a_database_is_created_and_dropped_under_its_users(server: EmbeddedPostgres) -> None:
    url = server.create_database('odd "name"/%')
    with psycopg.connect(url) as connection:
        assert connection.info.dbname == 'odd "name"/%'
        server.drop_database('odd "name"/%')
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_a_paused_server_does_not_answer_until_it_is_resumed(server: EmbeddedPostgres) -> None:
    def answers(seconds: float) -> bool:
        return bool(select.select([connection.fileno()], [], [], seconds)[0])

    with closing(psycopg.connect(server.url())) as connection:
        server.pause()
        connection.pgconn.send_query(b"SELECT 1")
        answered_in_pause = answers(0.2)
        server.resume()
        assert not answered_in_pause
        assert answers(30)


def test_the_url_stays_valid_and_commits_survive_every_way_to_fall(server: EmbeddedPostgres) -> None:
    url, postmaster = server.url(), server.postmaster_pid
    run(url, "CREATE TABLE falls (way text)")
    for fall in (server.restart, lambda: server.restart("immediate"), server.crash, server.kill):
        run(url, "INSERT INTO falls VALUES ('x')")
        fall()
        server.start()
        assert server.url() == url
        assert server.postmaster_pid != postmaster
        postmaster = server.postmaster_pid
    assert ask(url, "SELECT count(*) FROM falls") == 4


def test_kill_leaves_no_process_behind(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.url()) as connection:
        backend, postmaster = connection.info.backend_pid, server.postmaster_pid
        server.kill()
        assert server.postmaster_pid is None
        assert not is_alive(backend)
        assert postmaster is not None
        assert not is_alive(postmaster)
    server.start()


def test_a_port_taken_meanwhile_is_replaced(kept_dir: Path) -> None:
    with EmbeddedPostgres(kept_dir) as server:
        port = int(str(ask(server.url(), "SHOW port")))
    with socket.create_server(("127.0.0.1", port)), EmbeddedPostgres(kept_dir) as server:
        assert ask(server.url(), "SHOW port") != str(port)


def test_settings_override_the_defaults(kept_dir: Path) -> None:
    settings = {"fsync": "off", "max_connections": "17", "application_name": "it's a name"}
    with EmbeddedPostgres(kept_dir, settings=settings) as server, psycopg.connect(server.url()) as connection:
        shown = {name: connection.execute(f"SHOW {name}").fetchone() for name in settings}
    assert shown == {name: (value,) for name, value in settings.items()}


# ---- directories ------------------------------------------------------------------------------------------


def test_data_survives_in_a_kept_directory(kept_dir: Path) -> None:
    with EmbeddedPostgres(kept_dir) as server:
        first, postmaster = server.url(), server.postmaster_pid
        run(first, "CREATE TABLE kept AS SELECT 1 AS n")
        assert ask(first, "SHOW fsync") == "on"
    assert postmaster is not None
    assert not is_alive(postmaster)
    with EmbeddedPostgres(kept_dir) as server:
        assert server.url() == first
        assert ask(server.url(), "SELECT n FROM kept") == 1


def test_a_temporary_directory_vanishes_with_its_last_user() -> None:
    first = EmbeddedPostgres().start()
    directory, socket_dir = first.data_dir, Path(str(ask(first.url(), "SHOW unix_socket_directories")))
    second = EmbeddedPostgres(directory).start()
    first.stop()
    assert ask(second.url(), "SELECT 1") == 1
    second.stop()
    assert not directory.exists()
    assert not socket_dir.exists()


@pytest.mark.long
def test_an_interrupted_initdb_is_done_again(data_dir: Path) -> None:
    (data_dir / "data.partial-0").mkdir(parents=True)
    (data_dir / "data.partial-0" / "PG_VERSION").write_text("18\n")
    with EmbeddedPostgres(data_dir) as server:
        assert ask(server.url(), "SELECT 1") == 1


def test_the_default_directory_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/srv/data")
    assert default_data_dir(16) == Path("/srv/data/tasklib/postgres-16")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert default_data_dir() == Path("/home/ada/.local/share/tasklib/postgres-18")


# ---- many users -------------------------------------------------------------------------------------------


def test_two_processes_share_one_server_and_the_last_one_stops_it(
    data_dir: Path, new_user: Callable[..., User]
) -> None:
    users = [new_user(data_dir), new_user(data_dir)]
    for user in users:
        user.say()
    (postmaster, url, _), (other_postmaster, other_url, _) = [user.started() for user in users]
    assert (postmaster, url) == (other_postmaster, other_url)
    users[0].stop()
    assert ask(url, "SELECT 1") == 1
    users[1].stop()
    assert not is_alive(postmaster)


def test_a_server_is_adopted_after_its_user_was_killed(kept_dir: Path, new_user: Callable[..., User]) -> None:
    user = new_user(kept_dir)
    user.say()
    postmaster, url, _ = user.started()
    user.kill()
    with EmbeddedPostgres(kept_dir) as server:
        assert (server.postmaster_pid, server.url()) == (postmaster, url)
        assert ask(url, "SELECT 1") == 1
    assert not is_alive(postmaster)


def test_a_server_that_died_with_its_user_is_started_anew(kept_dir: Path, new_user: Callable[..., User]) -> None:
    user = new_user(kept_dir)
    user.say()
    postmaster, url, _ = user.started()
    user.kill()
    os.kill(postmaster, signal.SIGKILL)
    with EmbeddedPostgres(kept_dir) as server:
        assert ask(url, "SELECT 1") == 1
        assert server.postmaster_pid != postmaster


def test_a_pid_file_that_names_a_stranger_does_not_prevent_a_start(kept_dir: Path) -> None:
    with EmbeddedPostgres(kept_dir) as server:
        server.kill()
        pid_file = kept_dir / "data" / "postmaster.pid"
        rest = pid_file.read_text().partition("\n")[2]
        pid_file.write_text(f"{os.getpid()}\n{rest}")
        server.start()
        assert ask(server.url(), "SELECT 1") == 1


@pytest.mark.long
def test_temporary_servers_of_killed_users_are_swept(new_user: Callable[..., User]) -> None:
    user = new_user()
    user.say()
    postmaster, _, directory = user.started()
    user.kill()
    with EmbeddedPostgres():
        assert not is_alive(postmaster)
        assert not directory.exists()


def test_the_end_of_a_process_stops_its_server(new_user: Callable[..., User]) -> None:
    user = new_user()
    user.say()
    postmaster, _, directory = user.started()
    user.process.stdin.close()  # the program ends at the end of its input, without stop()
    user.process.wait()
    assert not is_alive(postmaster)
    assert not directory.exists()


def test_a_fork_does_not_stop_the_server_of_its_parent(server: EmbeddedPostgres) -> None:
    child = os.fork()
    if child == 0:
        server.stop()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ask(server.url(), "SELECT 1") == 1


# ---- binaries and accounts --------------------------------------------------------------------------------


@pytest.mark.long
def test_postgresql_16_comes_in_the_same_wheel() -> None:
    with EmbeddedPostgres(version=16) as server:
        assert str(ask(server.url(), "SHOW server_version")).startswith("16")


@pytest.mark.skipif(not SYSTEM_15.is_dir(), reason="PostgreSQL 15 is not installed")
def test_the_binaries_of_another_installation_can_be_used() -> None:
    with EmbeddedPostgres(bin_dir=SYSTEM_15) as server:
        assert str(ask(server.url(), "SHOW server_version")).startswith("15")


def test_a_missing_wheel_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EmbeddedPostgresError, match=r"pip install 'tasklib-pg\[embedded\]'.*--database-url"):
        EmbeddedPostgres().start()


def test_an_unknown_version_says_which_there_are() -> None:
    with pytest.raises(EmbeddedPostgresError, match=r"No embedded PostgreSQL 12: choose from \[16, 18\]"):
        EmbeddedPostgres(version=12).start()


def test_a_failed_start_shows_the_log_and_leaves_nothing() -> None:
    with pytest.raises(EmbeddedPostgresError, match=r"unrecognized .*no_such_setting") as failure:
        EmbeddedPostgres(settings={"no_such_setting": "1"}).start()
    directory = re.search(r"did not start in (\S+):", str(failure.value))
    assert directory is not None
    assert not Path(directory[1]).exists()


def test_a_lost_password_says_what_to_do_and_stops_the_server(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir).start()
    server.stop()
    (data_dir / "password").unlink()
    with pytest.raises(EmbeddedPostgresError, match=r"password is missing.* restore it, or delete"):
        server.start()
    assert server.postmaster_pid is None


def test_what_the_system_refuses_comes_out_as_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TaskLibError, match=r"embedded PostgreSQL failed: .*File exists"):
        EmbeddedPostgres(tmp_path / "file").start()


def test_what_the_server_refuses_comes_out_as_one_error(server: EmbeddedPostgres) -> None:
    with pytest.raises(EmbeddedPostgresError, match='"postgres" already exists'):
        server.create_database("postgres")


@as_root
def test_root_can_keep_data_below_a_private_directory(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    with EmbeddedPostgres(private / "db") as server:
        run(server.url(), "CREATE TABLE kept AS SELECT 1 AS n")
    with EmbeddedPostgres(private / "db") as server:
        assert ask(server.url(), "SELECT n FROM kept") == 1
    assert private.stat().st_mode & 0o777 == 0o700
    shutil.rmtree((private / "db" / "data").resolve())


@pytest.mark.long
@as_root
def test_root_can_run_binaries_below_a_private_directory_as_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "SERVER_ACCOUNTS", ("nobody",))
    wheel = wheel_bin_dir(18).parents[1]
    private = tmp_path / "site-packages"
    private.mkdir(mode=0o700)
    for package in (wheel, wheel.with_suffix(".libs")):
        shutil.copytree(package, private / package.name, ignore=shutil.ignore_patterns("pginstall", "*.a"))
    bin_dir = private / wheel.name / "pginstall18" / "bin"
    with EmbeddedPostgres(bin_dir=bin_dir) as server:
        postmaster = server.postmaster_pid
        assert Path(f"/proc/{postmaster}").owner() == "nobody"
        copy = Path(os.fsdecode(Path(f"/proc/{postmaster}/cmdline").read_bytes().split(b"\0")[0]))
        assert not copy.is_relative_to(private)
    shutil.rmtree(copy.parents[3])
