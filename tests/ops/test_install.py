"""`meshai service`: into a throw-away root directory, twice, over older and edited files, and out again."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import meshai.cli as shell
from meshai import __version__
from meshai.errors import ConfigError, MissingError
from meshai.ops import install, system, venv

SYSTEM_PYTHON = Path(f"/usr/bin/python3.{sys.version_info.minor}")


def usable_python():
    """One of this version that any user may run."""
    return SYSTEM_PYTHON if SYSTEM_PYTHON.is_file() else venv.interpreter()


@pytest.fixture
def root(tmp_path):
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    (etc / "group").write_text("root:x:0:\ndialout:x:20:\n")
    return tmp_path


@pytest.fixture
def place(root):
    return install.Place(root, usable_python())


@pytest.fixture
def no_program(monkeypatch):
    """The program itself is tested on its own: it takes a second."""
    monkeypatch.setattr(install, "_program", lambda place: [])


def carry_out(place):
    """Install; returns the commands that were told. The user is added as useradd would."""

    def run(command):
        assert command[0] == "useradd"
        with place.at(Path("/etc/passwd")).open("a") as file:
            file.write("meshai:x:999:999::/var/lib/meshai:/usr/sbin/nologin\n")
        with place.at(Path("/etc/group")).open("a") as file:
            file.write("meshai:x:999:\n")

    told = []
    install.carry_out(install.install_plan(place, run), told.append)
    return told


def test_second_install_has_nothing_to_do(place, no_program):
    assert [line.partition(":")[0] for line in carry_out(place)] == [
        "a user of its own", "a configuration to begin with", "99-meshai.rules", "meshai.service",
    ]  # fmt: skip
    assert carry_out(place) == []
    assert place.at(install.CONFIG_PATH).stat().st_mode & 0o777 == 0o640


def test_existing_configuration_is_not_touched(place, no_program):
    config = place.at(install.CONFIG_PATH)
    config.parent.mkdir(parents=True)
    config.write_text("bot: {name: mine}\n")
    carry_out(place)
    assert config.read_text() == "bot: {name: mine}\n"


def test_configuration_of_setup_is_made_readable_for_the_service(place, no_program):
    """`setup` writes mode 0600, perhaps before there is the service's group."""
    config = place.at(install.CONFIG_PATH)
    config.parent.mkdir(parents=True)
    config.write_text("bot: {name: mine}\n")
    config.chmod(0o600)
    told = [line for line in carry_out(place) if "chmod 640" in line]
    assert told if os.geteuid() == 0 else not told


def installed_unit(place):
    return place.at(install.UNIT_PATH)


def test_older_unit_is_replaced(place, no_program):
    carry_out(place)
    text = "[Service]\nExecStart=/old\n"
    old = install.MARK.format(version="0.0.1", digest=install._digest(text)) + text
    installed_unit(place).write_text(old)
    assert install.compare(installed_unit(place), install.shipped(install.UNIT)) == "older"
    assert len(carry_out(place)) == 1
    assert install.compare(installed_unit(place), install.shipped(install.UNIT)) == "current"
    assert list(installed_unit(place).parent.iterdir()) == [installed_unit(place)]


def test_unit_of_a_newer_program_is_told(place):
    unit = installed_unit(place)
    unit.parent.mkdir(parents=True)
    unit.write_text(install.MARK.format(version="99.0", digest=install._digest("x\n")) + "x\n")
    assert install.compare(unit, install.shipped(install.UNIT)) == "newer"


def test_edited_unit_is_kept_beside_the_new_one(place, no_program):
    carry_out(place)
    edited = installed_unit(place).read_text() + "Nice=5\n"
    installed_unit(place).write_text(edited)
    (told,) = carry_out(place)
    assert "systemctl edit" in told
    assert installed_unit(place).with_name("meshai.service.edited").read_text() == edited


def test_unit_copied_by_hand_is_current(place):
    unit = installed_unit(place)
    unit.parent.mkdir(parents=True)
    unit.write_text(install.shipped(install.UNIT))
    assert install.compare(unit, install.shipped(install.UNIT)) == "current"


def test_uninstall_takes_unit_and_rule_only(place, no_program):
    carry_out(place)
    for _ in range(2):
        install.carry_out(install.uninstall_plan(place, system.must), lambda _line: None)
    assert not installed_unit(place).exists()
    assert not place.at(install.RULES_PATH).exists()
    assert place.at(install.CONFIG_PATH).exists()


@pytest.mark.parametrize("python", ["/home/ann/.pyenv/bin/python3.11", "/root/.local/bin/python3"])
def test_interpreter_in_a_home_directory_is_refused_with_the_commands(root, monkeypatch, python):
    monkeypatch.setattr(install, "TWIN", root / "no-such-python")
    with pytest.raises(MissingError) as told:
        install.check(install.Place(root, Path(python)))
    assert "  sudo /usr/bin/python3 -m venv /opt/meshai\n  sudo /opt/meshai/bin/pip install " in str(told.value)
    assert str(told.value).endswith("  sudo /opt/meshai/bin/meshai service install")


@pytest.mark.skipif(not SYSTEM_PYTHON.is_file(), reason="the system has another Python")
def test_refusal_names_the_systems_own_twin(root):
    with pytest.raises(MissingError, match=f"--python {SYSTEM_PYTHON}"):
        install.check(install.Place(root, Path("/home/ann/bin/python3")))


def test_root_without_a_system_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(MissingError, match="holds no system"):
        install.check(install.Place(tmp_path, usable_python()))
    assert list(tmp_path.iterdir()) == []


def test_thing_that_is_no_python_is_refused(root):
    with pytest.raises(MissingError, match="no Python interpreter"):
        venv.check_interpreter(Path("/bin/false"))


def test_without_root_the_exact_commands_are_told(monkeypatch, capsys):
    monkeypatch.setattr(install, "check", lambda place: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(install, "_has_user", lambda place: False)
    monkeypatch.setattr(install, "_program", lambda place: [])
    assert shell.execute(["service", "install"]) == 3
    said = capsys.readouterr().err
    assert "this needs root:\n  sudo " in said
    assert "service install" in said
    assert "sudo sh -c 'useradd --system" in said
    assert "systemctl daemon-reload" in said


def test_configuration_in_a_closed_directory_is_there(place, monkeypatch):
    """The plan for whoever is not root: /etc/meshai is closed to them."""

    def refuse(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", refuse)
    assert install.has_configuration(place)
    assert install._configuration(place) == []


def test_mistaken_configuration_is_not_started(place, monkeypatch):
    config = place.at(install.CONFIG_PATH)
    config.parent.mkdir(parents=True)
    config.write_text("bot: {nam: x}\n")
    live = install.Place(place.root, place.python)
    monkeypatch.setattr(install.Place, "is_live", True)
    monkeypatch.setattr(install, "ask", lambda command: None)
    with pytest.raises(ConfigError, match="did you mean name"):
        install.start_plan(live, system.must, changed=True, fresh_config=False)


@pytest.mark.parametrize(
    ("active", "changed", "running", "verbs"),
    [
        (False, True, "", ["enable", "start"]),
        (True, True, __version__, ["restart"]),
        (True, False, "0.0.1", ["restart"]),
        (True, False, __version__, []),
    ],
)
def test_service_is_started_or_restarted_as_needed(place, monkeypatch, active, changed, running, verbs):
    answer = system.Answer(0 if active else 3, "", "")
    monkeypatch.setattr(install.Place, "is_live", True)
    monkeypatch.setattr(install, "ask", lambda command: answer)
    monkeypatch.setattr(install, "_running_version", lambda: running)
    config = place.at(install.CONFIG_PATH)
    config.parent.mkdir(parents=True)
    config.write_text("")
    steps = install.start_plan(place, system.must, changed=changed, fresh_config=False)
    assert [step.command.split()[1] for step in steps] == verbs


def test_status_tells_what_differs(place, no_program, capsys):
    command = ["service", "status", "--root", str(place.root)]
    assert shell.execute(command) == 3
    carry_out(place)
    with pytest.raises(SystemExit) as ended:  # no program there
        shell.execute(command)
    assert ended.value.code == 1
    assert "program    missing" in capsys.readouterr().out


def test_program_is_found_hidden_only_in_homes():
    assert venv.hidden_home(Path("/home/ann/x")) == Path("/home")
    assert venv.hidden_home(Path("/root/.pyenv/bin/python")) == Path("/root")
    assert venv.hidden_home(Path("/usr/bin/python3.11")) is None
    assert venv.hidden_home(Path("/opt/meshai/bin/python")) is None


def as_nobody():
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


@pytest.fixture(scope="module")
def program():
    """The real environment, in a directory that any user can enter."""
    root = Path(tempfile.mkdtemp(prefix="meshai-opt-"))
    root.chmod(0o755)
    before = os.umask(0o022)
    try:
        venv.build(root / "opt" / "meshai", python=usable_python(), seen_as=root / "opt" / "meshai")
        yield root / "opt" / "meshai"
    finally:
        os.umask(before)
        shutil.rmtree(root)


@pytest.mark.slow
@pytest.mark.skipif(venv.hidden_home(usable_python()) is not None, reason="no Python that another user may run")
def test_copied_program_runs_as_another_user(program):
    for command in ([program / "bin" / "meshai", "--version"], [program / "bin" / "meshai", "config", "example"]):
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, env={}, **as_nobody())
        assert (done.returncode, done.stderr) == (0, "")
    code = (
        "import meshai, meshtastic.tcp_interface, meshtastic.serial_interface, openai, tiktoken, aiosqlite, pydantic\n"
        "from meshai.radio import library; from meshai.ops import install\n"
        "library.check(); install.shipped('meshai.service'); print(meshai.__file__)"
    )
    done = subprocess.run(
        [program / "bin" / "python", "-c", code], capture_output=True, text=True, cwd="/", check=False,
        env={"HOME": "/nonexistent"}, **as_nobody(),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(str(program))


@pytest.mark.slow
def test_service_can_read_and_need_not_compile_the_program(program):
    """Whatever the checkout's modes are: nobody but root writes there."""
    site = next(program.glob("lib/python3*/site-packages"))
    files = [path for path in (site / "meshai").rglob("*") if path.is_file()]
    assert {oct(path.stat().st_mode & 0o777) for path in files} == {"0o644"}
    assert next((site / "meshai" / "__pycache__").glob("service.*.pyc"))


@pytest.mark.slow
def test_program_is_made_again_only_when_it_differs(program, monkeypatch):
    monkeypatch.setattr(venv, "ask", lambda words, **more: None if "compileall" in words else system.ask(words, **more))
    assert venv.is_current(program, usable_python())
    assert venv.installed_version(program) == __version__
    left_over = next(program.glob("lib/python3*/site-packages/meshai")) / "gone.py"
    left_over.write_text("")
    (program / venv.STAMP).write_text("made from something else")
    assert not venv.is_current(program, usable_python())
    venv.build(program, python=usable_python())
    assert venv.is_current(program, usable_python())
    assert not left_over.exists()
    assert len(list(program.glob("lib/python3*/site-packages/meshai-*.dist-info"))) == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit_as_installed(place, no_program, program):
    carry_out(place)
    unit = installed_unit(place)
    unit.write_text(unit.read_text().replace("/opt/meshai/bin", f"{program}/bin"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=25", "--no-pager", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
