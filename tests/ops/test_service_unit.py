"""systemd/meshai.service and the udev rule: what systemd's own tools say, and the unit's command as another user."""

import configparser
import functools
import os
import pwd
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

from meshai.ops import paths
from meshai.radio.discover import VENDORS

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "systemd" / "meshai.service"
RULES = ROOT / "systemd" / "99-meshai.rules"

# As MemoryDenyWriteExecute= does (PR_SET_MDWE); before Linux 6.3 the call fails and changes nothing.
WITHOUT_WRITABLE_CODE = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(65, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
)

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None and not os.environ.get("CI"), reason="systemd-analyze is not installed"
)


class Unit(configparser.RawConfigParser):
    """A unit file; of repeated keys the last."""

    def __init__(self):
        super().__init__(strict=False, interpolation=None)
        self.optionxform = str
        self.read_string(UNIT.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def service():
    return Unit()["Service"]


@needs_systemd
def test_exposure_is_low():
    """DESIGN: at most 2.5; the value is the last number of the summary line."""
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT)],
        capture_output=True,
        text=True,
        check=True,
    )
    summary = next(line for line in done.stdout.splitlines() if "Overall exposure level" in line)
    assert float(re.search(r": (\d+\.\d)", summary)[1]) <= 2.5


@needs_systemd
def test_systemd_has_nothing_to_say_about_the_unit(tmp_path):
    """Also of the credential's default: systemd 252 refuses the empty `SetCredential=id:`."""
    program = tmp_path / "meshai"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / "meshai.service"
    copy.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/meshai/bin/meshai", str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(copy)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_unit_says_what_the_daemon_counts_on(service):
    assert service["Type"] == "notify"
    assert service["NotifyAccess"] == "main"
    assert service["Restart"] == "always"
    assert int(service["WatchdogSec"]) >= 60
    assert service["StateDirectoryMode"] == "0700"
    assert Path("/run", service["RuntimeDirectory"]) == paths.SERVICE_RUNTIME
    assert service["LoadCredential"].partition(":")[0] == service["SetCredential"].partition(":")[0] == "llm_api_key"


def test_every_known_board_is_in_the_udev_rule():
    rules = RULES.read_text(encoding="utf-8")
    wanted = "|".join(f"{vendor:04x}" for vendor in VENDORS)
    assert re.findall(r'ATTRS?\{idVendor\}=="([^"]*)"', rules) == [wanted, wanted]
    for label in re.findall(r'GOTO="(\w+)"', rules):
        assert f'LABEL="{label}"' in rules


@pytest.mark.skipif(
    shutil.which("udevadm") is None
    or b"verify" not in subprocess.run(["udevadm", "--help"], capture_output=True, check=False).stdout,
    reason="udevadm verify came with systemd 254",
)
def test_udev_accepts_the_rule():
    done = subprocess.run(["udevadm", "verify", str(RULES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installation():
    """The wheel in a virtual environment below a root directory that any user can enter, without a network."""
    root = Path(tempfile.mkdtemp(prefix="meshai-root-"))
    root.chmod(0o755)
    try:
        _install(root)
        yield root
    finally:
        shutil.rmtree(root)


def _install(root):
    wheels, program = root / "wheels", root / "opt" / "meshai"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(wheels), str(ROOT)]
    subprocess.run([*pip, *build], check=True)
    subprocess.run([_interpreter(), "-m", "venv", "--without-pip", str(program)], check=True)
    site = next(program.glob("lib/python3*/site-packages"))
    _link_dependencies(Path(sysconfig.get_path("purelib")), site)
    python = str(program / "bin" / "python")
    (wheel,) = wheels.glob("meshai-*.whl")
    subprocess.run([*pip, "--python", python, "install", "--no-deps", "--no-index", str(wheel)], check=True)
    for directory in ("etc/meshai", "var/lib/meshai", "var/cache/meshai", "run/meshai"):
        (root / directory).mkdir(parents=True)
        if os.geteuid() == 0 and not directory.startswith("etc"):
            os.chown(root / directory, _other_user()["user"], _other_user()["group"])


@functools.cache
def _interpreter():
    """A Python of this version that the other user may run: one in root's home directory is none."""
    system = f"/usr/bin/python3.{sys.version_info.minor}"
    candidates = [sys._base_executable, system]
    return next((python for python in candidates if _may_run(python)), sys._base_executable)


def _may_run(python):
    try:
        return subprocess.run([python, "-c", ""], cwd="/", check=False, **_other_user()).returncode == 0
    except OSError:
        return False


def _other_user():
    """Who plays the service's user; nobody else than ourselves when we may not change."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _link_dependencies(source, target):
    """The packages of this environment but not MeshAI: what `pip install meshai` would fetch."""

    def link(old, new):
        try:
            os.link(old, new)
        except OSError:  # another file system
            shutil.copy2(old, new)

    def ours(directory, names):
        return [name for name in names if name.startswith(("meshai", "_meshai")) or name.endswith(".pth")]

    shutil.copytree(source, target, copy_function=link, ignore=ours, dirs_exist_ok=True)


def _as_service(root, command):
    """Run the words of a command to their end, as the service would."""
    with _start(root, command) as process:
        out, err = process.communicate(timeout=50)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _start(root, command, **env):
    """Start the words with every absolute path below ``root``, as the user nobody when that is possible."""
    words = [f"{root}{word}" if word.startswith("/") else word for word in command]
    directories = {
        "STATE_DIRECTORY": f"{root}/var/lib/meshai",
        "CACHE_DIRECTORY": f"{root}/var/cache/meshai",
        "RUNTIME_DIRECTORY": f"{root}/run/meshai",
    }
    return subprocess.Popen(
        [_interpreter(), "-c", WITHOUT_WRITABLE_CODE, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **directories, **env},
        **_other_user(),
    )


@pytest.mark.slow
def test_installed_program_runs_as_another_user(installation, service):
    program = shlex.split(service["ExecStart"])[0]
    done = _as_service(installation, [program, "--version"])
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"meshai \d+\.\d+\.\d+\n", done.stdout)


@pytest.mark.slow
def test_units_exact_command_reads_its_configuration(installation, service):
    config = installation / "etc" / "meshai" / "config.yaml"
    config.write_text("bot:\n  nam: x\n")
    done = _as_service(installation, shlex.split(service["ExecStart"]))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{config}:2:3: bot.nam: unknown key; did you mean name?\n"
    assert service["RestartPreventExitStatus"] == "2"


@pytest.mark.slow
def test_installation_brings_unit_and_rule(installation):
    (shipped,) = installation.glob(
        "opt/meshai/lib/python3*/site-packages/meshai/ops/systemd"
    )  # as docs/install.md says
    assert (shipped / UNIT.name).read_text() == UNIT.read_text()
    assert (shipped / RULES.name).read_text() == RULES.read_text()


@pytest.mark.slow
def test_everything_the_daemon_imports_is_in_the_wheel(installation, service):
    """Under MemoryDenyWriteExecute=, with the libraries that are compiled."""
    python = str(Path(shlex.split(service["ExecStart"])[0]).parent / "python")
    code = (
        "import meshai, pathlib, pkgutil, importlib\n"
        "names = [module.name for module in pkgutil.walk_packages(meshai.__path__, 'meshai.')]\n"
        "for name in names: name.endswith('__main__') or importlib.import_module(name)\n"
        "import meshtastic.tcp_interface, meshtastic.serial_interface, openai, tiktoken, aiosqlite\n"
        "print(pathlib.Path(meshai.__file__).is_relative_to(pathlib.Path.cwd()), len(names) > 50)"
    )
    done = _as_service(installation, [python, "-c", code])
    assert (done.stdout, done.stderr, done.returncode) == ("True True\n", "", 0)


@pytest.mark.slow
def test_service_is_ready_without_a_node_and_stops_on_sigterm(installation, service):
    """The unit's command with systemd's directories, its notification socket and a key that is a line feed."""
    (installation / "etc/meshai/config.yaml").write_text("connection: {type: tcp, tcp_port: 9}\nllm: {endpoints: []}\n")
    credentials = installation / "credentials"
    credentials.mkdir()
    (credentials / "llm_api_key").write_text(service["SetCredential"].partition(":")[2].replace("\\n", "\n"))
    address = installation / "run" / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        address.chmod(0o777)
        manager.settimeout(30)
        env = {"NOTIFY_SOCKET": str(address), "CREDENTIALS_DIRECTORY": str(credentials), "JOURNAL_STREAM": "8:1"}
        with _start(installation, shlex.split(service["ExecStart"]), **env) as process:
            first = manager.recv(4096)
            control = (installation / "run/meshai/control.sock").stat()
            process.terminate()
            _, err = process.communicate(timeout=30)
            last = b""
            while last != b"STOPPING=1":
                last = manager.recv(4096)
    assert first.startswith(b"READY=1\nSTATUS=")
    assert stat.S_ISSOCK(control.st_mode)
    assert stat.S_IMODE(control.st_mode) == 0o660
    assert process.returncode == 0
    assert all(re.match(r"<[2-7]>", line) for line in err.splitlines())
    assert (installation / "var/lib/meshai/meshai.db").exists()
