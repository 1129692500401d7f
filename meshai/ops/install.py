"""MeshAI as a system service: what is to be done, step by step, each one only if it is needed.

A step knows the command that does the same by hand, so that the plan can be shown to whoever is not root.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from meshai import __version__
from meshai.config.example import example
from meshai.config.loader import load_settings
from meshai.errors import MissingError
from meshai.ops import control, venv
from meshai.ops.paths import SERVICE_RUNTIME, SOCKET
from meshai.ops.system import ask

UNIT, RULES, USER = "meshai.service", "99-meshai.rules", "meshai"
PROGRAM = Path("/opt/meshai")
UNIT_PATH = Path("/etc/systemd/system") / UNIT
RULES_PATH = Path("/etc/udev/rules.d") / RULES
CONFIG_PATH = Path("/etc/meshai/config.yaml")
STATE_PATH = Path("/var/lib/meshai")
TWIN = Path(f"/usr/bin/python3.{sys.version_info.minor}")
"""The system's own Python, when it has the running one's version."""
USERADD = ("useradd", "--system", "--user-group", "--no-create-home", "--home-dir", str(STATE_PATH))
MARK = "# meshai service install: version {version}, sha256 {digest}\n"

Run = Callable[[list[str]], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do; ``command`` does it by hand. Already done: not in the plan."""

    text: str
    command: str
    act: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Place:
    """A system to install into: this one, or a directory that looks like one (``--root``), where nothing is started."""

    root: Path = Path("/")
    python: Path = field(default_factory=venv.interpreter)

    @property
    def is_live(self) -> bool:
        """This computer's own system."""
        return self.root == Path("/")

    def at(self, path: Path) -> Path:
        """Where a file of the system is."""
        return self.root / path.relative_to("/")


def shipped(name: str) -> str:
    """The text of a file of ours that belongs into the system."""
    tree = venv.source_tree()
    directory = tree / "systemd" if tree is not None else Path(__file__).parent / "systemd"
    try:
        return (directory / name).read_text(encoding="utf-8")
    except OSError:
        raise MissingError(f"this installation lacks {name}: install MeshAI again") from None


def marked(text: str) -> str:
    """A shipped file as it is installed: with its version and sum, so that it can be told from an edited one."""
    return MARK.format(version=__version__, digest=_digest(text)) + text


def check(place: Place) -> None:
    """Raise MissingError when this interpreter cannot run the service."""
    home = venv.hidden_home(place.python)
    if home is not None:
        raise MissingError(f"the interpreter {place.python} is below {home}, which the service cannot see. {_moved()}")
    venv.check_interpreter(place.python)
    if not place.at(Path("/etc/passwd")).is_file():
        raise MissingError(f"{place.root} holds no system (no etc/passwd there): --root is for the root of one")
    if place.is_live and not Path("/run/systemd/system").is_dir():
        raise MissingError("systemd does not run this computer: there is no service to install here")


def install_plan(place: Place, run: Run) -> list[Step]:
    """What is missing, in order. Empty: all is in place."""
    files = [*_program(place), *_user(place, run), *_configuration(place)]
    rule, unit = _file(place, RULES_PATH, shipped(RULES)), _file(place, UNIT_PATH, shipped(UNIT))
    if place.is_live and rule:
        rule += _commands(run, "let udev know", "udevadm control --reload", "udevadm trigger")
    if place.is_live and unit:
        unit += _commands(run, "let systemd know", "systemctl daemon-reload")
    return files + rule + unit


def start_plan(place: Place, run: Run, *, changed: bool, fresh_config: bool) -> list[Step]:
    """After installing: start with the computer, and run the new program. Not with an example nobody has looked at.

    Raises ConfigError when the configuration has mistakes: a running service is left as it is.
    """
    if not place.is_live:
        return []
    steps = []
    if not _answers(["systemctl", "is-enabled", "--quiet", UNIT]):
        steps += _commands(run, "start it with the computer", f"systemctl enable --quiet {UNIT}")
    if fresh_config:
        return steps
    load_settings(place.at(CONFIG_PATH), {})
    if not _answers(["systemctl", "is-active", "--quiet", UNIT]):
        steps += _commands(run, "start it", f"systemctl start {UNIT}")
    elif changed or _running_version() != __version__:
        steps += _commands(run, "run the new program", f"systemctl restart {UNIT}")
    return steps


def uninstall_plan(place: Place, run: Run) -> list[Step]:
    """Take the service away; data, configuration, user and program stay."""
    unit, rule = place.at(UNIT_PATH), place.at(RULES_PATH)
    steps = []
    if place.is_live and unit.exists():
        steps += _commands(run, "stop it", f"systemctl disable --now --quiet {UNIT}")
    steps += [_removal(path) for path in (unit, rule) if path.exists()]
    if place.is_live and unit.exists():
        steps += _commands(run, "let systemd know", "systemctl daemon-reload")
    if place.is_live and rule.exists():
        steps += _commands(run, "let udev know", "udevadm control --reload")
    return steps


def has_configuration(place: Place) -> bool:
    """Whether there is one, also when it may not be looked at."""
    try:
        place.at(CONFIG_PATH).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def carry_out(steps: list[Step], say: Callable[[str], None]) -> None:
    """Do every step; each is told first."""
    for step in steps:
        say(f"{step.text}: {step.command}")
        try:
            step.act()
        except OSError as error:
            raise MissingError(f"{step.command}: {error.strerror or 'error'} ({error.filename})") from None


def state_of_service() -> str:
    """What systemd says of it: "active (running), starts with the computer"."""
    answer = ask(["systemctl", "show", UNIT, "--property=ActiveState,SubState,UnitFileState"])
    facts = dict(line.partition("=")[::2] for line in (answer.out if answer else "").splitlines())
    if not facts.get("ActiveState"):
        return "unknown: systemd does not answer"
    starts = "starts" if facts.get("UnitFileState") == "enabled" else "does not start"
    return f"{facts['ActiveState']} ({facts.get('SubState', '')}), {starts} with the computer"


def compare(path: Path, text: str) -> str:
    """How an installed file stands to the shipped ``text``: missing, current, older, newer, or edited."""
    try:
        found = path.read_text(encoding="utf-8")
    except OSError:
        return "missing"
    head, _, body = found.partition("\n")
    if text in (found, body):
        return "current"
    version, _, digest = head.removeprefix(MARK.partition("{")[0]).partition(", sha256 ")
    if not digest or digest != _digest(body):
        return "edited"
    return "newer" if _numbers(version) > _numbers(__version__) else "older"


def _moved() -> str:
    """The commands that make an installation the service can see."""
    if TWIN.is_file():
        return f"With the system's own Python of the same version:\n  {sudo('install')} --python {TWIN}"
    source = shlex.quote(str(venv.source_tree() or "meshai"))
    return (
        "Use the system's own:\n"
        "  sudo apt install -y python3-venv\n"
        f"  sudo /usr/bin/python3 -m venv {PROGRAM}\n"
        f"  sudo {PROGRAM}/bin/pip install {source}\n"
        f"  sudo {PROGRAM}/bin/meshai service install"
    )


def sudo(verb: str) -> str:
    """The same command as root, with a full path: root's PATH is another one."""
    program = Path(sys.argv[0])
    name = str(program.absolute()) if program.name == "meshai" and program.exists() else f"{sys.executable} -m meshai"
    return f"sudo {name} service {verb}"


def _program(place: Place) -> list[Step]:
    program = place.at(PROGRAM)
    if venv.is_running_from(program) or venv.is_current(program, place.python):
        return []

    def act() -> None:
        venv.build(program, python=place.python, seen_as=PROGRAM)

    source = venv.source_tree() or "meshai"
    by_hand = f"{place.python} -m venv {program} && {program}/bin/pip install {shlex.quote(str(source))}"
    return [Step("the program", by_hand, act)]


def _user(place: Place, run: Run) -> list[Step]:
    if _has_user(place):
        return []
    shell = ("--shell", "/usr/sbin/nologin")
    prefix = () if place.is_live else ("--prefix", str(place.root))
    command = [*USERADD, *shell, *prefix, USER]
    return [Step("a user of its own", shlex.join(command), lambda: run(command))]


def _configuration(place: Place) -> list[Step]:
    """An example when there is none: readable for the service, not for everybody."""
    path = place.at(CONFIG_PATH)
    if has_configuration(place):
        return _readable(place, path)

    def act() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, example(), 0o640)
        path.parent.chmod(0o750)
        group = _group(place)
        if group is not None and os.geteuid() == 0:
            os.chown(path.parent, 0, group)
            os.chown(path, 0, group)

    command = f"{PROGRAM}/bin/meshai config example | install -D -o root -g {USER} -m 640 /dev/stdin {path}"
    return [Step("a configuration to begin with", command, act)]


def _readable(place: Place, path: Path) -> list[Step]:
    """A configuration that only root can read, as `setup` leaves it before there is the service's group."""
    try:
        facts = path.stat()
    except PermissionError:  # not root: the directory is closed, as it should be
        return []
    if facts.st_mode & 0o044 or facts.st_uid != 0:
        return []

    def act() -> None:
        group = _group(place)
        if group is not None and os.geteuid() == 0:
            os.chown(path, 0, group)
            path.chmod(0o640)

    return [Step("let the service read its configuration", f"chgrp {USER} {path} && chmod 640 {path}", act)]


def _file(place: Place, path: Path, text: str) -> list[Step]:
    """Bring an installed file up to date; one that was edited by hand is kept beside it."""
    target = place.at(path)
    state = compare(target, text)
    if state == "current":
        return []

    def act() -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if state == "edited":
            shutil.copy2(target, target.with_name(f"{target.name}.edited"))
        _write(target, marked(text), 0o644)

    kept = f" (yours is kept as {target.name}.edited; a drop-in survives updates: systemctl edit {UNIT})"
    source = f"{PROGRAM}/lib/python3*/site-packages/meshai/ops/systemd/{path.name}"
    return [Step(path.name + (kept if state == "edited" else ""), f"cp {source} {target}", act)]


def _write(path: Path, text: str, mode: int) -> None:
    scratch = path.with_name(f".{path.name}.new")
    scratch.write_text(text, encoding="utf-8")
    scratch.chmod(mode)
    scratch.replace(path)


def _removal(path: Path) -> Step:
    return Step("remove", f"rm {path}", path.unlink)


def _commands(run: Run, text: str, *commands: str) -> list[Step]:
    return [Step(text, command, partial(run, command.split())) for command in commands]


def _has_user(place: Place) -> bool:
    return any(line.startswith(f"{USER}:") for line in _lines(place.at(Path("/etc/passwd"))))


def _group(place: Place) -> int | None:
    lines = [line.split(":") for line in _lines(place.at(Path("/etc/group"))) if line.startswith(f"{USER}:")]
    return int(lines[0][2]) if lines and len(lines[0]) > 2 and lines[0][2].isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _answers(command: list[str]) -> bool:
    answer = ask(command)
    return answer is not None and answer.code == 0


def _running_version() -> str:
    """What the running service says it is, "" when it does not answer."""
    try:
        return str(control.call(SERVICE_RUNTIME / SOCKET, "status", timeout_s=5.0).get("version", ""))
    except MissingError:
        return ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
