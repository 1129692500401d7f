"""Where the daemon's files are. systemd's directories when it gives them, the user's own otherwise (DESIGN §4.4)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from meshai.errors import MissingError

DATABASE = "meshai.db"
SOCKET = "control.sock"
SERVICE_CONFIG = Path("/etc/meshai/config.yaml")
SERVICE_STATE = Path("/var/lib/meshai")
"""StateDirectory= of systemd/meshai.service."""
SERVICE_RUNTIME = Path("/run/meshai")
"""RuntimeDirectory= of systemd/meshai.service: where a shell finds the service's socket."""


def state_dir(env: Mapping[str, str]) -> Path:
    """``$STATE_DIRECTORY``, else ``~/.local/share/meshai``. Raises MissingError without a home directory."""
    given = _first(env, "STATE_DIRECTORY")
    return given if given is not None else _home(env) / ".local" / "share" / "meshai"


def database_path(configured: str, env: Mapping[str, str]) -> Path:
    """``storage.database``, else ``meshai.db`` in the state directory."""
    if not configured:
        return state_dir(env) / DATABASE
    if configured.startswith("~/"):
        return _home(env) / configured[2:]
    return Path(configured)


def find_database(configured: str, source: Path | None, env: Mapping[str, str]) -> Path:
    """The database a subcommand means: with the service's configuration it is the service's, not the caller's own."""
    if not configured and source == SERVICE_CONFIG and not env.get("STATE_DIRECTORY"):
        return SERVICE_STATE / DATABASE
    return database_path(configured, env)


def control_socket(database: Path, env: Mapping[str, str]) -> Path:
    """Where the daemon listens: in ``$RUNTIME_DIRECTORY``, else beside the database."""
    given = _first(env, "RUNTIME_DIRECTORY")
    return given / SOCKET if given is not None else _beside(database)


def find_control_socket(database: Path, env: Mapping[str, str]) -> Path | None:
    """Where a running daemon may be reached, None when there is no socket. The service's comes last."""
    places = (control_socket(database, env), _beside(database), SERVICE_RUNTIME / SOCKET)
    return next((place for place in places if _is_socket(place)), None)


def lock_path(database: Path) -> Path:
    """The side file whose lock says that a daemon uses this database."""
    return database.with_name(f"{database.name}.lock")


def make_private_dir(path: Path) -> None:
    """Create a directory for the owner only, with everything above it. Raises MissingError."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise MissingError(f"cannot create the directory {path}: {error.strerror or 'error'}") from None


def _is_socket(place: Path) -> bool:
    try:
        return place.is_socket()
    except OSError:  # a directory that is closed to us
        return False


def _beside(database: Path) -> Path:
    return database.with_name(f"{database.name}.sock")


def _first(env: Mapping[str, str], name: str) -> Path | None:
    """The directory of a variable; of several, which systemd separates by colons, the first."""
    value = env.get(name, "").split(":")[0]
    return Path(value) if value else None


def _home(env: Mapping[str, str]) -> Path:
    home = env.get("HOME", "")
    if not home:
        raise MissingError("there is no home directory (HOME is not set): set storage.database, or STATE_DIRECTORY")
    return Path(home)
