"""Which file is read, what the environment changes, and what is only a warning."""

from pathlib import Path

import pytest

from meshai.config.loader import load_settings
from meshai.config.model import SHARES, Settings
from meshai.errors import ConfigError
from meshai.memory import budget


@pytest.mark.parametrize("content", ["", "# nothing yet\n", "---\n", "bot:\nllm:\nmemory:\n  tuning:\n", "\ufeff"])
def test_empty_file_and_empty_sections_are_defaults(load, content):
    loaded = load(content)
    assert loaded.settings == Settings()
    assert (loaded.warnings, loaded.notes) == ((), ())


def test_byte_order_mark_is_skipped(load):
    assert load("\ufeffbot:\n  name: hal\n").settings.bot.name == "hal"


def test_aliases_are_followed(load):
    loaded = load("access:\n  allow: &friends ['!A1B2C3D4']\n  block: *friends\n")
    assert loaded.settings.access.allow == loaded.settings.access.block == ["!a1b2c3d4"]


def test_dates_and_hexadecimal_ports_are_what_they_look_like(load):
    settings = load("bot: {owner: 2026-01-02}\nconnection: {tcp_port: 0x1133}\n").settings
    assert (settings.bot.owner, settings.connection.tcp_port) == ("2026-01-02", 4403)


def test_named_file_must_exist(tmp_path):
    with pytest.raises(ConfigError, match=r"^gone\.yaml: there is no such file$"):
        load_settings("gone.yaml", {})
    with pytest.raises(ConfigError, match="there is no such file"):
        load_settings(None, {"MESHAI_CONFIG": str(tmp_path / "gone.yaml")})


def test_directory_is_not_a_file(tmp_path):
    with pytest.raises(ConfigError, match="this is a directory, not a file"):
        load_settings(tmp_path, {})


def test_unreadable_file_says_why(tmp_path):
    """A loop of links: unreadable for root, too."""
    path = tmp_path / "loop.yaml"
    path.symlink_to(path)
    with pytest.raises(ConfigError, match="cannot be read: Too many levels"):
        load_settings(path, {})


def test_another_users_file_is_told_with_the_way_in(tmp_path, monkeypatch):
    """Root reads everything, so the refusal is made up."""
    path = tmp_path / "config.yaml"
    path.touch()

    def refuse(*_args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigError, match="cannot be read by this user: try again with sudo"):
        load_settings(path, {})


def test_closed_file_is_not_passed_over(tmp_path, monkeypatch):
    """An ordinary user beside an installed service: its configuration, not silent defaults."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").symlink_to("config.yaml")
    with pytest.raises(ConfigError, match=r"^config\.yaml: cannot be read: "):
        load_settings(None, {})


def test_first_file_found_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home" / ".config" / "meshai" / "config.yaml"
    home.parent.mkdir(parents=True)
    env = {"HOME": str(tmp_path / "home")}
    named = tmp_path / "named.yaml"
    for name, path in (("home", home), ("here", tmp_path / "config.yaml"), ("named", named)):
        path.write_text(f"bot: {{name: {name}}}")

    assert load_settings(None, {**env, "MESHAI_CONFIG": str(named)}).settings.bot.name == "named"
    assert load_settings(None, env).settings.bot.name == "here"
    (tmp_path / "config.yaml").unlink()
    assert load_settings(None, env).settings.bot.name == "home"


def test_no_file_anywhere_is_defaults_with_a_warning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("meshai.config.loader.places", lambda env: (tmp_path / "none.yaml",))
    loaded = load_settings(None, {})
    assert loaded.settings == Settings()
    assert loaded.name == "built-in defaults"
    assert loaded.warnings == (f"no configuration file found, the defaults are used ({tmp_path}/none.yaml)",)


def test_environment_overrides_the_file(load):
    loaded = load(
        "llm: {temperature: 0.1}\nreply: {max_parts: 2}\n",
        MESHAI_LLM__TEMPERATURE="1",
        MESHAI_MEMORY__TUNING__MIN_MESSAGES="12",
        MESHAI_BOT__OWNER="@me: #1 'x'",
        MESHAI_ACCESS__ALLOW="!a1b2c3d4, !b1b2c3d4",
        MESHAI_CHANNELS="[{name: bot}]",
        MESHAI_LLM__ENDPOINTS__0__MODEL="qwen3",
        MESHAI_LLM__ENDPOINTS__0__API_KEY="12345",
        MESHAI_LLM__ENDPOINTS__0__EXTRA_BODY__THINK="false",
        MESHAI_CONFIG="ignored.yaml",
        HOME="/root",
    )
    settings = loaded.settings
    assert (settings.llm.temperature, settings.memory.tuning.min_messages) == (1.0, 12)
    assert settings.reply.max_parts == 2
    assert settings.bot.owner == "@me: #1 'x'"
    assert settings.access.allow == ["!a1b2c3d4", "!b1b2c3d4"]
    assert settings.channels[0].name == "bot"
    endpoint = settings.llm.endpoints[0]
    assert (endpoint.name, endpoint.model, endpoint.extra_body) == ("local", "qwen3", {"think": False})
    assert settings.secrets() == ("12345",)
    assert "MESHAI_LLM__ENDPOINTS__0__MODEL" in loaded.overrides


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("MESHAI_REPLY__MAX_BYTE", "9", "there is no such setting; did you mean MESHAI_REPLY__MAX_BYTES?"),
        ("MESHAI_LLM_TEMPERATURE", "1", "there is no such setting; did you mean MESHAI_LLM__TEMPERATURE?"),
        ("MESHAI_REPLY__MAX_BYTES", "900", "must be at most 220 (got 900)"),
        ("MESHAI_REPLY__SPACING_S", "fast", "a number is needed (got 'fast')"),
        ("MESHAI_BOT", "{name: x}", "this is a section; set MESHAI_BOT__<KEY>"),
        ("MESHAI_LLM__ENDPOINTS__1__MODEL", "x", "the list has no such entry (they are counted from 0)"),
        ("MESHAI_LLM__ENDPOINTS__MODEL", "x", "the list has no such entry (they are counted from 0)"),
        ("MESHAI_CONNECTION__TYPE", "usb", "must be serial, tcp or ble (got 'usb')"),
    ],
)
def test_wrong_variable_is_a_mistake(mistakes, name, value, message):
    assert mistakes("", **{name: value}) == [f"environment: {name}: {message}"]


def test_mistakes_of_file_and_environment_come_together(mistakes):
    assert mistakes("bot: {nam: x}", MESHAI_REPLY__MAX_PARTS="0") == [
        "config.yaml:1:7: bot.nam: unknown key; did you mean name?",
        "environment: MESHAI_REPLY__MAX_PARTS: must be at least 1 (got 0)",
    ]


def test_foreign_variable_is_only_a_warning(load):
    assert load("", MESHAI_PIP="1").warnings == ("MESHAI_PIP is not a setting of MeshAI",)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("reply: {spacing_s: 1.5}", "reply.spacing_s: 1.5 is below 2.0"),
        ("access: {require_pki: false}", "access.require_pki: false lets anybody"),
        ("access: {admins: ['!a1b2c3d4']}", "access.admins: !a1b2c3d4 has no public key"),
        ("access: {allow: ['!a1b2c3d4'], block: ['!a1b2c3d4']}", "block wins"),
        ("connection: {type: ble, ble_address: x}", "ble is best effort"),
        ("llm: {endpoints: [{name: a, base_url: 'http://10.0.0.2:8080', model: m}]}", "wants /v1 at the end"),
        (
            "llm: {endpoints: [{name: a, base_url: 'http://api.example.org/v1', model: m, api_key: abc}]}",
            "the key would travel unencrypted",
        ),
    ],
)
def test_doubtful_value_is_a_warning(load, content, part):
    warnings = load(content).warnings
    assert len(warnings) == 1
    assert part in warnings[0]


@pytest.mark.parametrize(
    "base_url", ["http://127.0.0.1/v1", "http://192.168.1.5/v1", "http://pi.local/v1", "https://x.org/v1"]
)
def test_key_on_a_safe_way_is_no_warning(load, base_url):
    assert load(f"llm: {{endpoints: [{{name: a, base_url: '{base_url}', model: m, api_key: abc}}]}}").warnings == ()


def test_key_in_a_file_everybody_can_read(load, tmp_path):
    content = "llm: {endpoints: [{name: a, base_url: 'https://x/v1', model: m, api_key: abc}]}"
    assert load(content).warnings == ()
    (tmp_path / "config.yaml").chmod(0o644)
    assert load_settings("config.yaml", {}).warnings == (
        "everybody on this computer can read config.yaml, which holds a key: chmod o-rwx config.yaml",
    )


def test_shares_are_those_of_the_memory():
    assert dict(budget.SHARES) == SHARES
