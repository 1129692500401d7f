"""`meshai doctor`: every finding that matters can be made to appear, and each failure says what to type."""

import os
import socket
import sqlite3
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml
from support.e2e_world import World

from meshai.config.loader import Loaded
from meshai.config.model import Settings
from meshai.errors import DatabaseUnavailableError
from meshai.llm.scripted import Reply, ScriptedServer
from meshai.ops import doctor, install, paths
from meshai.ops.doctor import daemon, data, files, machine, model, node, port
from meshai.ops.doctor.base import Check, Context
from meshai.ops.lock import DatabaseLock
from meshai.ops.node_facts import described, node_of
from meshai.ops.system import Answer
from meshai.radio import explain
from meshai.radio.link import Channel, LinkState, NodeInfo
from meshai.storage.database import prepare

GOOD = NodeInfo(
    num=0xA1B2C3D4, long_name="Bot", public_key=b"k" * 32, firmware="2.7.26.54e0d8d", hardware="RAK4631",
    region="EU_868", channels=(Channel(0, "LongFast", is_primary=True, has_default_key=True),),
)  # fmt: skip


def silent(_command):
    return None


def saying(text, code=0):
    return lambda _command: Answer(code, text, "")


@pytest.fixture
def make(tmp_path):
    """A context over an empty root directory; settings as keywords."""

    def making(ask=silent, **sections):
        loaded = Loaded(Settings.model_validate(sections), None)
        return Context({}, loaded, tmp_path / "meshai.db", root=tmp_path, ask=ask)

    return making


def found(checks, name):
    """The worst finding of a name."""
    named = [check for check in checks if check.name == name]
    assert named, f"no finding {name}: {[check.name for check in checks]}"
    return min(named, key=lambda check: ("fail", "warn", "ok", "skip").index(check.status))


def put(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# The whole.


@pytest.fixture
async def world(tmp_path):
    async with AsyncExitStack() as stack:

        async def enter(*, bot=True):
            built = World(tmp_path)
            await stack.enter_async_context(built if bot else _Mesh(built))
            config = tmp_path / "config.yaml"
            config.write_text(yaml.safe_dump(built.stage.settings().model_dump(mode="json", exclude_defaults=True)))
            config.chmod(0o600)
            return built, config, {"RUNTIME_DIRECTORY": str(tmp_path), "HOME": str(tmp_path)}

        yield enter


class _Mesh:
    """The world without its bot."""

    def __init__(self, world):
        self.world = world

    async def __aenter__(self):
        await super(World, self.world).__aenter__()

    async def __aexit__(self, *exc_info):
        await self.world.__aexit__(*exc_info)


async def test_beside_a_running_daemon_its_node_is_left_alone(world, tmp_path):
    built, config, env = await world()
    built.server.serve_models(max_model_len=8192)
    before = built.daemon.link.status()["connections"]
    checks = await doctor.examine(config, env)
    assert found(checks, "node").text.startswith("connected by the daemon")
    assert {"firmware", "region", "role", "hop limit", "database", "disk", "python"} <= {check.name for check in checks}
    assert found(checks, "model scripted").status == "ok"
    assert "context 8192 tokens" in found(checks, "model scripted").text
    assert [check for check in checks if check.status == "fail"] == []
    assert built.daemon.link.status()["connections"] == before
    assert await built.ask(built.alice, "still there?") == "OK"
    await built.until(lambda: built.value("SELECT count(*) FROM outbound WHERE state = 'delivered'"))
    assert found(await doctor.examine(config, env), "answers").status == "ok"


async def test_without_a_daemon_the_node_is_asked_itself(world, tmp_path):
    _, config, env = await world(bot=False)
    checks = await doctor.examine(config, env)
    assert found(checks, "daemon").status == "skip"
    assert found(checks, "node").status == "ok"
    assert found(checks, "firmware").status == "ok"
    checks = await doctor.examine(config, env, leave_node="--no-node")
    assert found(checks, "node") == Check("node", "skip", "not opened: --no-node")


async def test_hanging_daemon_is_a_failure_and_keeps_its_node(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "STATUS_TIMEOUT_S", 0.1)
    config = put(tmp_path / "config.yaml", f"llm: {{endpoints: []}}\nstorage: {{database: {tmp_path}/meshai.db}}\n")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "meshai.db.sock"))
        server.listen()
        checks = await doctor.examine(config, {})
    assert "did not answer" in found(checks, "daemon").text
    assert found(checks, "daemon").status == "fail"
    assert found(checks, "node").status == "skip"


async def test_starting_daemon_keeps_its_node(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "SERVICE_RUNTIME", tmp_path / "none")
    config = put(tmp_path / "config.yaml", f"llm: {{endpoints: []}}\nstorage: {{database: {tmp_path}/meshai.db}}\n")
    with DatabaseLock(paths.lock_path(tmp_path / "meshai.db")):
        checks = await doctor.examine(config, {})
    assert "starting" in found(checks, "daemon").text
    assert found(checks, "node").status == "skip"


async def test_other_user_does_not_take_the_node_from_a_daemon(tmp_path, monkeypatch):
    """Socket and lock are in directories that are closed to this user."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(doctor.lock, "is_held", lambda _path: None)
    config = put(tmp_path / "config.yaml", f"llm: {{endpoints: []}}\nstorage: {{database: {tmp_path}/meshai.db}}\n")
    checks = await doctor.examine(config, {})
    assert (found(checks, "daemon").status, found(checks, "daemon").fix) == ("skip", "sudo meshai doctor")
    assert (found(checks, "node").status, found(checks, "node").fix) == ("skip", "sudo meshai doctor")


def test_another_users_configuration_is_read_with_sudo():
    closed = SimpleNamespace(loaded=None)
    (check,) = files.check_configuration(closed, "x.yaml: cannot be read by this user: try again with sudo")
    assert check.fix == "sudo meshai doctor"


@pytest.mark.parametrize(("user", "fix"), [(0, ""), (1000, "sudo meshai doctor")])
async def test_node_of_a_silent_daemon_is_left_alone(monkeypatch, user, fix):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    (check,) = await node.check_node(SimpleNamespace(facts=None, daemon_runs=True))
    assert (check.status, check.fix) == ("skip", fix)


async def test_mistaken_configuration_does_not_hide_the_rest(tmp_path):
    config = put(tmp_path / "config.yaml", "bot: {nam: x}\n")
    checks = await doctor.examine(config, {"HOME": str(tmp_path)})
    assert "did you mean name" in found(checks, "configuration").text
    assert found(checks, "model").status == found(checks, "node").status == "skip"
    assert found(checks, "disk").status in ("ok", "warn")


async def test_check_that_breaks_is_a_finding(tmp_path, monkeypatch):
    def broken(_ctx):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(machine, "check_power", broken)
    config = put(tmp_path / "config.yaml", "llm: {endpoints: []}\n")
    checks = await doctor.examine(config, {"HOME": str(tmp_path)}, leave_node="x")
    assert "ZeroDivisionError: oops" in found(checks, "power").text
    assert found(checks, "clock")


def test_failure_without_a_fix_is_impossible():
    with pytest.raises(AssertionError):
        Check("x", "fail", "broken")


# The node.


@pytest.mark.parametrize(
    ("firmware", "status"),
    [
        ("2.7.26.54e0d8d", "ok"), ("2.7.18.abc", "warn"), ("2.7.13.abc", "warn"), ("2.7.3", "warn"), ("2.4.9", "fail"),
        ("2.8.0.abc", "warn"), ("", "warn"),
    ],
)  # fmt: skip
def test_firmware_is_judged_by_its_rules(firmware, status):
    check = found(node.judge(replace(GOOD, firmware=firmware), Settings()), "firmware")
    assert check.status == status
    assert status == "ok" or check.fix


@pytest.mark.parametrize(
    ("changes", "name", "status"),
    [
        ({"region": "UNSET"}, "region", "fail"),
        ({"region": "UA_868"}, "region", "warn"),  # 1 %, less than the default budget
        ({"override_duty_cycle": True}, "region", "warn"),
        ({"region": "US"}, "region", "ok"),
        ({"role": "ROUTER"}, "role", "warn"),
        ({"role": "TRACKER"}, "role", "warn"),
        ({"role": "CLIENT_MUTE"}, "role", "ok"),
        ({"hop_limit": 7}, "hop limit", "warn"),
        ({"licensed": True}, "node settings", "fail"),
        ({"public_key": None}, "node settings", "fail"),
    ],
)
def test_node_settings_are_judged(changes, name, status):
    assert found(node.judge(replace(GOOD, **changes), Settings()), name).status == status


def test_node_survives_the_way_through_status():
    again = node_of({"node": described(GOOD)})
    assert {check.name: check.status for check in node.judge(again, Settings())} == {
        check.name: check.status for check in node.judge(GOOD, Settings())
    }
    assert described(again) == described(GOOD) | {"hardware": "", "nodes_known": 0}


def test_status_of_an_older_daemon_is_no_error():
    facts = {"node": {"id": "!a1b2c3d4", "name": "x"}, "link": {"state": "up", "device": "d", "reason": ""}}
    assert node_of(facts) is None


class StuckLink:
    """A link that never comes up."""

    node = None

    def __init__(self, state, reason=""):
        self.state, self.reason = state, reason
        self.stopped = False

    async def start(self, _sink):
        pass

    async def stop(self):
        self.stopped = True

    def status(self):
        return {"reason": self.reason}


async def test_wedged_and_refusing_nodes_are_told_apart():
    wedged, refused = StuckLink(LinkState.CONNECTING), StuckLink(LinkState.DOWN, explain.HELD)
    assert "wedged" in (await node.visit(wedged, timeout_s=0.05))[1]
    assert (await node.visit(refused))[1] == explain.HELD
    assert wedged.stopped
    assert refused.stopped


async def test_node_that_is_not_there_is_told_at_once(make):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        ctx = make(connection={"type": "tcp", "tcp_port": free.getsockname()[1]})
        (check,) = await node.check_node(ctx)
    assert check.status == "fail"
    assert explain.REFUSED in check.text
    assert "connection.tcp_port" in check.fix


@pytest.mark.parametrize(
    "reason", [explain.HELD, explain.GONE, explain.NO_PERMISSION, explain.REFUSED, "the host name is unknown"]
)
def test_every_usual_reason_has_its_own_remedy(reason):
    assert "reset button" in node._remedy("whatever else")
    assert "reset button" not in node._remedy(reason)


# The port.


@pytest.fixture
def serial(tmp_path):
    """A port that is there; ``hold(pid, name)`` lets a process have it open."""
    device = put(tmp_path / "dev" / "ttyACM0")

    def hold(pid, name):
        put(tmp_path / "proc" / str(pid) / "comm", f"{name}\n")
        (tmp_path / "proc" / str(pid) / "fd").mkdir()
        (tmp_path / "proc" / str(pid) / "fd" / "7").symlink_to(device)

    return hold


SERIAL = {"connection": {"serial_port": "/dev/ttyACM0"}}


@pytest.mark.parametrize(
    ("name", "fix"),
    [("gpsd", "disable --now gpsd"), ("ModemManager", "ModemManager"), ("meshtastic", "sudo kill 4711")],
)
def test_holder_of_the_port_is_named_with_its_end(make, serial, name, fix):
    serial(4711, name)
    (check,) = port.check_port(make(**SERIAL))
    assert check.status == "fail"
    assert f"{name} (process 4711)" in check.text
    assert fix in check.fix


def test_daemon_may_hold_its_port(make, serial):
    serial(4711, "meshai")
    ctx = make(**SERIAL)
    ctx.facts, ctx.daemon_runs = {"pid": 4711}, True
    assert [check.status for check in port.check_port(ctx)] == ["ok"]
    serial(4712, "meshtastic")
    assert [check.status for check in port.check_port(ctx)] == ["fail"]


def test_holder_is_found_in_the_real_proc(tmp_path):
    master, slave = os.openpty()
    ctx = Context({}, None, tmp_path / "x")
    assert os.getpid() in port.holders(ctx, os.ttyname(slave))
    device = os.ttyname(slave)
    os.close(slave)
    assert os.getpid() not in port.holders(ctx, device)
    os.close(master)


def test_free_port_and_missing_port(make, serial):
    assert [check.status for check in port.check_port(make(**SERIAL))] == ["ok"]
    gone = {"connection": {"serial_port": "/dev/ttyACM9"}}
    (check,) = port.check_port(make(**gone))
    assert "is not there" in check.text
    assert list(port.check_port(make(connection={"type": "tcp"}))) == []


# Files.


def test_open_key_and_database_are_told(make, tmp_path):
    key = put(tmp_path / "etc/meshai/llm_api_key", "secret")
    database = put(tmp_path / "meshai.db")
    key.chmod(0o644)
    database.chmod(0o604)
    tmp_path.chmod(0o755)
    key.parent.chmod(0o755)
    checks = list(files.check_permissions(make()))
    assert {check.fix for check in checks} == {f"sudo chmod 600 {key}", f"sudo chmod 600 {database}"}
    key.chmod(0o600)
    tmp_path.chmod(0o700)
    assert [check.status for check in files.check_permissions(make())] == ["ok"]


def test_user_without_dialout_gets_the_command(make, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getgroups", lambda: [1000])
    monkeypatch.setattr(files.getpass, "getuser", lambda: "ann")
    (check,) = files.check_dialout(make())
    assert check.fix.startswith("sudo usermod -aG dialout ann")


# The model.


@pytest.fixture
async def server():
    async with ScriptedServer() as running:
        yield running


def endpoints(*urls, name="scripted"):
    made = [{"name": f"e{n}", "base_url": url, "model": name, "api_key": "k"} for n, url in enumerate(urls)]
    return {"llm": {"endpoints": made}}


async def test_refused_key_is_a_failure_with_the_way_to_set_it(make, server):
    server.reply(Reply.unauthorized())
    (check,) = await model.check_models(make(**endpoints(server.base_url)))
    assert check.status == "fail"
    assert "/etc/meshai/llm_api_key" in check.fix
    assert "api_key: k" not in repr(check)


async def test_one_dead_endpoint_of_two_is_a_warning(make, server):
    server.serve_models(max_model_len=4096)
    ctx = make(**endpoints(f"{server.root_url}/nothing-here", server.base_url))
    server.reply(Reply.no_such_model("scripted"))
    dead, alive = await model.check_models(ctx)
    assert (dead.status, alive.status) == ("warn", "ok")
    assert "curl" in dead.fix
    assert 'says "OK"' in alive.text


async def test_context_nobody_knows_is_told(make, server):
    (check,) = await model.check_models(make(**endpoints(server.base_url)))
    assert check.status == "warn"
    assert "context_tokens" in check.fix


async def test_key_of_the_service_is_used_as_systemd_would(make, server, tmp_path, monkeypatch):
    put(tmp_path / "etc/meshai/llm_api_key", "from-file\n")
    ctx = make(llm={"endpoints": [{"name": "e", "base_url": server.base_url, "model": "m"}]})
    ctx.loaded = Loaded(ctx.loaded.settings, paths.SERVICE_CONFIG)
    await model.check_models(ctx)
    assert server.requests[0].headers["authorization"] == "Bearer from-file"


@pytest.mark.parametrize(("name", "says"), [("llama3.2", "estimated"), ("gpt-4o", "counted exactly")])
def test_vocabulary_is_really_loaded(make, name, says):
    (check,) = model.check_vocabulary(make(**endpoints("http://127.0.0.1:1/v1", name=name)))
    assert check.status == "ok"
    assert says in check.text


# The data.


def test_damaged_database_names_the_newest_copy(make, tmp_path):
    put(tmp_path / "meshai.db", "nonsense" * 1000)
    copy = put(tmp_path / "meshai.db.daily-20270101-000000")
    (check,) = data.check_database(make())
    assert check.status == "fail"
    assert f"meshai restore {copy}" in check.fix


def test_sound_database_and_missing_one(make, tmp_path):
    (check,) = data.check_database(make())
    assert check.status == "skip"
    prepare(tmp_path / "meshai.db")
    (check,) = data.check_database(make())
    assert check.status == "ok"
    assert "0 messages" in check.text


def test_database_of_somebody_else_asks_for_sudo(make, tmp_path, monkeypatch):
    prepare(tmp_path / "meshai.db")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (check,) = data.check_database(make())
    assert (check.status, check.fix) == ("skip", "sudo meshai doctor")
    assert list(data.check_people(make())) == []


def test_busy_database_is_no_failure(make, tmp_path, monkeypatch):
    prepare(tmp_path / "meshai.db")

    def locked(_path):
        raise DatabaseUnavailableError("database is locked")

    monkeypatch.setattr(data.backup, "inspect", locked)
    assert [check.status for check in data.check_database(make())] == ["skip"]


HOUR = 3600.0


@pytest.mark.parametrize(
    ("delivered_ago", "asked_ago", "status"),
    [(HOUR, 2 * HOUR, "ok"), (5 * HOUR, HOUR, "warn"), (9 * 24 * HOUR, 10 * 24 * HOUR, "warn"), (None, HOUR, "skip")],
)
def test_last_delivered_answer_is_judged(make, tmp_path, delivered_ago, asked_ago, status):
    prepare(tmp_path / "meshai.db")
    ctx = make()
    with closing(sqlite3.connect(tmp_path / "meshai.db")) as db, db:
        db.execute(
            "INSERT INTO inbound (node_id, packet_id, content, received_at, updated_at) VALUES ('!1', 1, 'x', ?, 0)",
            (ctx.now - asked_ago,),
        )
        if delivered_ago is not None:
            db.execute("INSERT INTO answers (id, node_id, kind, created_at) VALUES (1, '!1', 'answer', 0)")
            db.execute(
                "INSERT INTO outbound (answer_id, node_id, packet_id, part, total, content, state, expires_at,"
                " created_at, settled_at) VALUES (1, '!1', 2, 1, 1, 'x', 'delivered', 0, 0, ?)",
                (ctx.now - delivered_ago,),
            )
    assert found(data.check_people(ctx), "answers").status == status


def test_daemon_tells_the_last_answer_where_the_database_is_closed(make, tmp_path, monkeypatch):
    ctx = make()
    ctx.facts = {"last_delivered_at": ctx.now - HOUR, "problems": [], "nodes": []}
    assert found(data.check_people(ctx), "answers").text == "the last delivered answer was 1h 0m ago"


def test_key_alarm_comes_with_the_command(make):
    ctx = make()
    ctx.facts = {"nodes": [{"node_id": "!a1b2c3d4", "key_alarm_at": 5.0}], "problems": []}
    assert "meshai identity accept '!a1b2c3d4'" in found(data.check_people(ctx), "keys").fix


# The machine.


@pytest.mark.parametrize(
    ("says", "status"),
    [
        ("throttled=0x0\n", "ok"),
        ("throttled=0x50005\n", "fail"),
        ("throttled=0x50000\n", "warn"),
        ("throttled=0x8\n", "warn"),
        ("error\n", "skip"),
    ],
)
def test_power_of_a_pi_is_read(make, says, status):
    assert [check.status for check in machine.check_power(make(saying(says)))] == [status]


def mounted(tmp_path, options="rw", **sysfs):
    number = tmp_path.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    put(
        tmp_path / "proc/self/mountinfo",
        f"30 1 {device} / / {options},noatime shared:1 - ext4 /dev/mmcblk0p2 {options}\n",
    )
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / "sys/dev/block" / device).symlink_to("../../devices/mmcblk0/mmcblk0p2")
    for name, text in sysfs.items():
        put(tmp_path / "sys/fs/ext4/mmcblk0p2" / name, text)


def test_card_that_went_read_only_is_a_failure(make, tmp_path):
    mounted(tmp_path, "ro")
    assert "replace it" in found(machine.check_disk(make()), "disk").fix


def test_card_tells_errors_and_wear(make, tmp_path):
    mounted(tmp_path, errors_count="3", lifetime_write_kbytes="120000000")
    put(tmp_path / "sys/class/block/mmcblk0/device/life_time", "0x0a 0x01")
    checks = list(machine.check_disk(make()))
    assert "3 file system errors" in found(checks, "disk").text
    assert found(checks, "card").text.startswith("100 % of its life are used, 120 GB written")


@pytest.mark.parametrize(("free", "status"), [(1e6, "fail"), (1e8, "warn"), (1e10, "ok")])
def test_room_on_the_disk_is_judged(make, monkeypatch, free, status):
    usage = machine.shutil._ntuple_diskusage(1e11, 0, free)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _path: usage)
    assert found(machine.check_disk(make()), "disk").status == status


def test_clock_that_was_never_set_is_a_failure(make):
    ctx = make()
    ctx.now = 1000.0
    assert [check.status for check in machine.check_clock(ctx)] == ["fail"]
    assert [check.status for check in machine.check_clock(make(saying("no\n")))] == ["warn"]
    assert [check.status for check in machine.check_clock(make(saying("yes\n")))] == ["ok"]


def test_library_out_of_range_is_told_with_the_command(make, monkeypatch):
    real = machine.metadata.version
    monkeypatch.setattr(machine.metadata, "version", lambda name: "1.0" if name == "openai" else real(name))
    check = found(machine.check_python(make()), "libraries")
    assert check.status == "fail"
    assert "pip install 'openai" in check.fix


def test_pythons_are_those_of_the_project():
    from importlib import metadata

    assert metadata.metadata("meshai")["Requires-Python"] == "<3.15,>=3.11"
    assert machine.PYTHONS == ((3, 11), (3, 15))


# The service.


def service(**facts):
    known = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "UnitFileState": "enabled"}
    return saying("".join(f"{name}={value}\n" for name, value in {**known, "NRestarts": "0", **facts}.items()))


@pytest.mark.parametrize(
    ("facts", "status", "says"),
    [
        ({}, "ok", "active (running)"),
        ({"ActiveState": "failed", "ExecMainStatus": "2"}, "fail", "the configuration has mistakes"),
        ({"NRestarts": "12"}, "warn", "restarted 12 times"),
        ({"ActiveState": "inactive"}, "warn", "inactive"),
        ({"UnitFileState": "disabled"}, "warn", "does not start with the computer"),
        ({"LoadState": "not-found"}, "skip", "not installed"),
    ],
)
def test_state_of_the_service_is_judged(make, tmp_path, facts, status, says):
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    put(tmp_path / "etc/udev/rules.d" / install.RULES, install.shipped(install.RULES))
    check = found(daemon.check_service(make(service(**facts))), "service")
    assert check.status == status
    assert says in check.text


def test_older_unit_is_told(make, tmp_path):
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    text = "x\n"
    put(
        tmp_path / "etc/systemd/system/meshai.service",
        install.MARK.format(version="0.0.1", digest=install._digest(text)) + text,
    )
    checks = daemon.check_service(make(service()))
    assert any(
        "older than this program" in check.text and check.fix == "sudo meshai service install" for check in checks
    )
