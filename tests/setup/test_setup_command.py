"""`meshai setup` whole: flags without a terminal, answers on one, interruptions, what it writes and what it leaves."""

import asyncio
import json
import os
import re
import resource
import subprocess
import sys

import pytest
from click.testing import CliRunner
from support.e2e_world import World

from meshai.cli import cli
from meshai.config.loader import load_settings
from meshai.errors import ConfigError, MissingError, UsageError
from meshai.identity import pinned_admin_key
from meshai.llm.scripted import Reply, ScriptedServer
from meshai.setup.node import UsbNode

OLD = """\
# Anna's bot, do not touch the preset
bot:
  owner: "Anna"        # me
reply:
  max_parts: 2         # our hill is busy
llm:
  endpoints:
    - name: den        # the computer under the stairs
      base_url: http://10.9.9.9:11434/v1
      model: qwen3
access:
  block: ["!deadbeef"]  # knows why
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("MESHAI_", "LLM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    monkeypatch.setattr("meshai.setup.models.KNOWN", ())
    monkeypatch.setattr("meshai.setup.node.on_usb", list)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "conf" / "config.yaml"


async def run(*args, typed=""):
    """The command without a terminal of its own, its questions answered by ``typed``."""
    return await asyncio.to_thread(CliRunner().invoke, cli, [*map(str, args)], input=typed)


def flags(mesh, server, target):
    host = f"{mesh.bot_host}:{mesh.bot_port}"
    return ["setup", "-o", target, "--host", host, "--model-url", server.base_url, "--no-wait"]


def written(target):
    return load_settings(target, {}).settings


async def test_flags_alone_are_enough(mesh, server, target, tmp_path):
    key = tmp_path / "key"
    key.write_text("sk-scripted-key\n")
    key.chmod(0o600)
    more = ["--model", "qwen3:8b", "--owner", "Anna", "--allow", "!0a11ce03", "--api-key-file", key, "--yes"]
    done = await run(*flags(mesh, server, target), *more)
    assert done.exit_code == 0, done.output
    settings = written(target)
    endpoint = settings.llm.endpoints[0]
    assert (settings.connection.type, settings.connection.tcp_port) == ("tcp", mesh.bot_port)
    assert (endpoint.base_url, endpoint.model, endpoint.api_key_file) == (server.base_url, "qwen3:8b", str(key))
    assert (settings.bot.owner, settings.access.allow) == ("Anna", ["!0a11ce03"])
    assert target.stat().st_mode & 0o777 == 0o600
    assert server.requests[0].headers["authorization"] == "Bearer sk-scripted-key"
    assert "sk-scripted" not in done.output + target.read_text()
    assert "region US, preset LONG_FAST" in done.output
    assert 'It says: "LoRa is a long-range radio modulation."' in done.output
    assert "https://meshtastic.org/v/#" in done.output


async def test_existing_file_keeps_comments_order_and_other_values(mesh, server, target):
    target.parent.mkdir()
    target.write_text(OLD)
    done = await run(*flags(mesh, server, target), "--model", "llama3.2:3b", "--yes")
    assert done.exit_code == 0, done.output
    text = target.read_text()
    assert text.startswith(OLD.replace("http://10.9.9.9:11434/v1", server.base_url).replace("qwen3", "llama3.2:3b"))
    settings = written(target)
    assert (settings.bot.owner, settings.reply.max_parts, settings.access.block) == ("Anna", 2, ["!deadbeef"])
    assert settings.connection.tcp_port == mesh.bot_port


async def test_second_run_changes_nothing(mesh, server, target):
    arguments = [*flags(mesh, server, target), "--model", "qwen3:8b", "--yes"]
    await run(*arguments)
    before = target.read_text()
    done = await run(*arguments)
    assert "Nothing to change." in done.output
    assert target.read_text() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "auto", "--host", "x"], "give one of them"),
        (["--host", "http://x"], "only the name or the address"),
        (["--allow", "bob"], "a node id looks like"),
        (["--owner", "x" * 61], "at most 60 fit"),
        (["--model-url", "ftp://x"], "an address looks like"),
        (["--no-check"], "which model"),
        (["--no-check", "--model", "x"], "belong to --model-url"),
        (["--no-check", "--model-url", "http://127.0.0.1:9/v1"], "name of the model with --model"),
    ],
)
async def test_wrong_flags_are_told_before_anything_is_done(target, arguments, said):
    done = await run("setup", "-o", target, "--yes", *arguments)
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)
    assert not target.parent.exists()


async def test_several_models_are_named_when_none_was_chosen(mesh, server, target):
    done = await run(*flags(mesh, server, target), "--yes")
    assert "--model: llama3.2:3b, qwen3:8b, nomic-embed-text" in str(done.exception)
    assert not target.exists()


async def test_unreachable_node_ends_without_a_file(server, target):
    done = await run("setup", "-o", target, "--host", "127.0.0.1:9", "--model-url", "none", "--yes", "--no-wait")
    assert isinstance(done.exception, MissingError)
    assert "nothing listens there" in str(done.exception)
    assert not target.parent.exists()


async def test_nothing_is_asked_with_no_check(target):
    done = await run("setup", "-o", target, "--port", "/dev/ttyACM7", "--model-url", "none", "--no-check", "--yes")
    assert done.exit_code == 0, done.output
    assert (written(target).connection.serial_port, written(target).llm.endpoints) == ("/dev/ttyACM7", [])


async def test_mistakes_of_an_existing_file_come_first(target):
    target.parent.mkdir()
    target.write_text("bot:\n  ownr: A\n")
    done = await run("setup", "-o", target, "--yes")
    assert isinstance(done.exception, ConfigError)
    assert "config.yaml:2:3: bot.ownr: unknown key; did you mean owner?" in str(done.exception)


async def test_without_terminal_and_flags_the_way_is_told(target):
    done = await run("setup", "-o", target)
    assert isinstance(done.exception, UsageError)
    assert "--yes" in str(done.exception)


ANSWERS = "9\n1\nno host?\n{host}\n1\nftp://x\n{url}\nmistral\n1\ny\n{owner}\nAnna, DL1ABC\n2\nbob\n!0a11ce03\ny\n"


async def test_rubbish_is_asked_again_with_the_reason(mesh, server, target):
    typed = ANSWERS.format(host=f"{mesh.bot_host}:{mesh.bot_port}", url=server.base_url, owner="x" * 70)
    done = await run("setup", "-o", target, "--no-wait", typed=typed)
    assert done.exit_code == 0, done.output
    for reason in (
        "a number from 1 to 2",
        "not a host",
        "an address looks",
        "a name from the list",
        "at most 60",
        "'bob'",
    ):
        assert f"Error: {reason}" in done.output or reason in done.output
    settings = written(target)
    assert (settings.bot.owner, settings.access.allow) == ("Anna, DL1ABC", ["!0a11ce03"])
    assert settings.llm.endpoints[0].model == "llama3.2:3b"


async def test_key_is_asked_for_and_kept_in_a_file_of_its_own(mesh, target, monkeypatch):
    async with ScriptedServer() as closed:
        closed.reply(Reply.unauthorized(), "LoRa is radio.")
        monkeypatch.setattr("meshai.setup.console.Console.secret", lambda self, question: "sk-typed-secret")
        typed = f"1\n{mesh.bot_host}:{mesh.bot_port}\n1\n{closed.base_url}\ngpt\ny\n\n1\ny\n"
        done = await run("setup", "-o", target, "--no-wait", typed=typed)
    assert done.exit_code == 0, done.output
    key_file = target.parent / "llm_api_key"
    assert (key_file.read_text(), key_file.stat().st_mode & 0o777) == ("sk-typed-secret\n", 0o600)
    assert written(target).llm.endpoints[0].api_key_file == str(key_file)
    assert "sk-typed" not in done.output + target.read_text()


async def test_model_that_fails_leads_back_to_the_choice(mesh, server, target):
    server.reply(Reply.no_such_model("x"))
    typed = f"1\n{mesh.bot_host}:{mesh.bot_port}\n1\n{server.base_url}\n1\nn\n2\n\n1\ny\n"
    done = await run("setup", "-o", target, "--no-wait", typed=typed)
    assert done.exit_code == 0, done.output
    assert "No answer: the server does not have the model" in done.output
    assert written(target).llm.endpoints == []


async def test_key_of_the_service_is_handed_over_by_systemd(mesh, target, monkeypatch):
    """The service's user cannot read what is root's alone: the unit passes the file on as a credential."""
    monkeypatch.setattr("meshai.setup.files.SERVICE_CONFIG", target)
    monkeypatch.setattr("meshai.setup.console.Console.secret", lambda self, question: "sk-typed-secret")
    async with ScriptedServer() as closed:
        closed.reply(Reply.unauthorized(), "LoRa is radio.")
        typed = f"1\n{mesh.bot_host}:{mesh.bot_port}\n1\n{closed.base_url}\ngpt\ny\n\n1\ny\nn\n"
        done = await run("setup", "-o", target, "--no-wait", typed=typed)
    assert done.exit_code == 0, done.output
    assert (target.parent / "llm_api_key").read_text() == "sk-typed-secret\n"
    assert written(target).llm.endpoints[0].api_key_file == ""
    assert "service install" in done.output


async def test_key_of_the_environment_is_used_and_not_written(mesh, server, target, monkeypatch):
    monkeypatch.setenv("LLM_API_KEY", "sk-from-environment")
    done = await run(*flags(mesh, server, target), "--model", "qwen3:8b", "--yes")
    assert done.exit_code == 0, done.output
    assert server.requests[0].headers["authorization"] == "Bearer sk-from-environment"
    assert "sk-from" not in done.output + target.read_text()


async def test_flag_answers_ham_mode_without_a_terminal(mesh, target):
    mesh.bot.settings.licensed = True
    host = f"{mesh.bot_host}:{mesh.bot_port}"
    arguments = ["setup", "-o", target, "--host", host, "--model-url", "none", "--no-wait", "--yes"]
    assert "stays true: nobody is answered" in (await run(*arguments)).output
    await run(*arguments, "--no-pki")
    assert written(target).access.require_pki is False


@pytest.mark.parametrize(("typed", "require_pki"), [("y", False), ("n", True)])
async def test_ham_mode_is_explained_and_asked(mesh, target, typed, require_pki):
    mesh.bot.settings.licensed = True
    answers = f"1\n{mesh.bot_host}:{mesh.bot_port}\n{typed}\n2\n\n1\ny\n"
    done = await run("setup", "-o", target, "--no-wait", typed=answers)
    assert done.exit_code == 0, done.output
    assert "the law forbids it to encrypt" in done.output
    assert written(target).access.require_pki is require_pki


async def test_node_on_usb_is_offered_by_its_lasting_name(usb, target, monkeypatch):
    monkeypatch.setattr("meshai.setup.node.on_usb", lambda: [UsbNode(usb.path, "nRF52 (Adafruit, RAK)")])
    done = await run("setup", "-o", target, "--no-wait", typed="1\n2\n\n1\ny\n")
    assert done.exit_code == 0, done.output
    assert f"1  {usb.path} (nRF52 (Adafruit, RAK))" in done.output
    assert written(target).connection.serial_port == usb.path


async def test_everything_may_stay_as_it_is(mesh, server, target):
    arguments = [
        *flags(mesh, server, target),
        "--model",
        "qwen3:8b",
        "--yes",
        "--owner",
        "Anna",
        "--allow",
        "!0a11ce03",
    ]
    await run(*arguments)
    before = target.read_text()
    done = await run("setup", "-o", target, "--no-wait", typed="1\n1\n\n1\n")
    assert f"1  as in the file: {mesh.bot_host}:{mesh.bot_port}" in done.output
    assert "1  keep qwen3:8b at" in done.output
    assert "Nothing to change." in done.output
    assert target.read_text() == before


async def test_running_daemon_tells_and_keeps_its_port(tmp_path, target):
    async with World(tmp_path) as world:
        connections = world.stage.virtual.port.connections
        target.parent.mkdir()
        target.write_text(f"storage:\n  database: {world.stage.database}\nllm:\n  endpoints: []\n")
        done = await run("setup", "-o", target, "--yes", "--no-wait", "--owner", "Anna")
        assert done.exit_code == 0, done.output
        shown = await run("identity", "show", "--json", "-c", target)
        assert world.stage.virtual.port.connections == connections
    assert "A daemon is running" in done.output
    facts = json.loads(shown.output)
    assert (facts["node_id"], facts["url"] in done.output) == ("!0b07a1a1", True)
    assert written(target).bot.owner == "Anna"


async def test_identity_show_reads_the_node_when_no_daemon_runs(mesh, target):
    target.parent.mkdir()
    target.write_text(f"connection: {{type: tcp, tcp_host: {mesh.bot_host}, tcp_port: {mesh.bot_port}}}\n")
    shown = await run("identity", "show", "-c", target)
    assert shown.exit_code == 0, shown.output
    assert "█▀▀▀▀▀█" in shown.output
    assert "https://meshtastic.org/v/#" in shown.output
    assert "\x1b" not in shown.output


# On a real terminal, in a process of its own.


async def answer_all(screen, mesh, server):
    await screen.answer("Which one", "1")
    await screen.answer("Its name or address", f"{mesh.bot_host}:{mesh.bot_port}")
    await screen.until("The language model")
    await screen.until("another address")
    other = re.findall(r"(\d)  another address", screen.screen)[-1]
    await screen.answer("Which one", other)
    await screen.answer("Address, like", server.base_url)
    await screen.answer("Which model", "2")
    await screen.answer("Use this model", "y")
    await screen.answer("Whose bot", "Anna")
    await screen.answer("Who may talk", "1")


async def test_operator_becomes_admin_by_sending_the_code(terminal, mesh, server, target):
    alice = mesh.phones[0]
    screen = await terminal("setup", "-o", str(target))
    await answer_all(screen, mesh, server)
    await screen.answer(f"Write {target}", "y")
    code = (await screen.until(r"\n {6}(\d{6})\n"))[1]
    await screen.until("Waiting")
    await alice.send_dm(mesh.bot, "hello \x1b[2Jbot")
    await screen.until(re.escape("> !0a11ce03 Alice: hello  [2Jbot   (encrypted with its key)"))
    assert written(target).access.admins == []
    await alice.send_dm(mesh.bot, code)
    await screen.until("!0a11ce03 is an admin now")
    assert await screen.end() == 0
    assert pinned_admin_key(written(target).access.admins, "!0a11ce03") == alice.node.public_key
    assert code not in target.read_text()


@pytest.mark.parametrize("question", ["Its name or address", "Which model", "Write /"])
async def test_ctrl_c_before_the_end_leaves_nothing(terminal, mesh, server, target, question):
    screen = await terminal("setup", "-o", str(target))
    answering = asyncio.create_task(answer_all(screen, mesh, server))
    while question not in screen.screen:
        await asyncio.sleep(0.02)
    answering.cancel()
    screen.type("\x03")
    await screen.until("Nothing was written")
    assert await screen.end() == 130
    assert not target.parent.exists()


async def test_ctrl_c_while_the_node_is_silent_leaves_nothing(terminal, mesh, target):
    mesh.port.silent = True
    screen = await terminal("setup", "-o", str(target), "--host", f"{mesh.bot_host}:{mesh.bot_port}")
    await screen.until("Asking the node")
    while not mesh.port.connected:
        await asyncio.sleep(0.02)
    screen.type("\x03")
    await screen.until("Nothing was written")
    assert await screen.end() == 130
    assert not target.parent.exists()


async def test_ctrl_c_while_waiting_skips_only_the_wait(terminal, mesh, target):
    host = f"{mesh.bot_host}:{mesh.bot_port}"
    screen = await terminal("setup", "-o", str(target), "--host", host, "--model-url", "none", "--yes")
    await screen.until("Waiting")
    screen.type("\x03")
    await screen.until("Not waiting any longer")
    assert await screen.end() == 0
    assert written(target).access.admins == []


def test_file_system_that_takes_no_more_leaves_the_old_file(target, tmp_path):
    """A real write error in the middle of the file."""
    target.parent.mkdir()
    target.write_text("bot:\n  owner: Anna\n" + "# padding\n" * 600)
    before = target.read_text()
    done = subprocess.run(
        [sys.executable, "-m", "meshai", "setup", "-o", target, "--yes", "--no-check", "--owner", "Bert",
         "--model-url", "none"],
        capture_output=True, text=True, check=False, timeout=30,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )  # fmt: skip
    assert done.returncode == 3
    assert "nothing was changed: file too large" in done.stderr
    assert target.read_text() == before
    assert [path.name for path in target.parent.iterdir()] == ["config.yaml"]
