"""Real databases for the tests of the records: SQLite files, and a PostgreSQL server of the test run's own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BINARIES = ("/usr/lib/postgresql/*/bin", "/usr/local/bin", "/usr/bin")


def find_postgres() -> Path | None:
    """Return the folder of PostgreSQL's programs, where it is installed."""
    folders = [path for pattern in _BINARIES for path in sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)]
    return next((f for f in folders if (f / "initdb").is_file() and (f / "pg_ctl").is_file()), None)


@contextmanager
def run_postgres(programs: Path) -> Iterator[str]:
    """Run a server that listens on a socket in a folder of its own; give its URL, to which a database's name is appended."""
    folder = Path(tempfile.mkdtemp(prefix="aicf-pg-"))
    prefix: list[str] = []
    user = pwd.getpwuid(os.getuid()).pw_name
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        user = "postgres"
        shutil.chown(folder, user)
        prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    data, log = folder / "data", folder / "log"

    def call(*command: str) -> None:
        subprocess.run([*prefix, *command], check=True, capture_output=True, cwd=folder, timeout=120)

    try:
        call(str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "aicf", "--no-sync", "-E", "UTF8", "--locale=C")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        call(str(programs / "pg_ctl"), "-D", str(data), "-l", str(log), "-o", options, "-w", "start")
        try:
            yield f"postgresql+psycopg://aicf@/{{name}}?host={folder}"
        finally:
            call(str(programs / "pg_ctl"), "-D", str(data), "-m", "immediate", "-w", "stop")
    finally:
        for _ in range(5):
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            time.sleep(0.1)
