"""What is typed: taken, or refused with a reason."""

import pytest

from meshai.config.loader import load_settings
from meshai.config.model import Settings
from meshai.errors import UsageError
from meshai.setup import answers
from meshai.setup.answers import Answers, changes
from meshai.setup.edit import apply

FILE = """\
llm:
  endpoints:
    - name: home
      base_url: http://10.0.0.5:11434/v1
      model: qwen3
      api_key: "sk-old-secret"
"""


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("meshtastic.local", ("meshtastic.local", 4403)),
        (" 192.168.1.5:4404 ", ("192.168.1.5", 4404)),
        ("fe80::1", ("fe80::1", 4403)),
        ("[fe80::1]:4500", ("fe80::1", 4500)),
    ],
)
def test_host_with_and_without_port(typed, found):
    assert answers.host(typed) == found


@pytest.mark.parametrize("typed", ["", "http://x", "a b", "x:99999", "x:port", "x:0", "user@x", "x/y", "[", "x:1:2:y"])
def test_rubbish_is_no_host(typed):
    with pytest.raises(UsageError):
        answers.host(typed)


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("127.0.0.1:11434", "http://127.0.0.1:11434"),
        ("https://api.example.org/v1/", "https://api.example.org/v1"),
        ("http://pi:8080/v1/chat/completions", "http://pi:8080/v1"),
        ("http://pi:8080/v1/models", "http://pi:8080/v1"),
    ],
)
def test_model_address_as_people_paste_it(typed, url):
    assert answers.model_url(typed) == url


@pytest.mark.parametrize(
    "typed", ["", "ftp://x", "http://", "http://x:99999", "http://a b", "http://me:pw@x/v1", "http://x/v1?key=1"]
)
def test_rubbish_is_no_model_address(typed):
    with pytest.raises(UsageError):
        answers.model_url(typed)


def test_node_ids_in_any_dress():
    assert answers.node_ids("!A1B2C3D4, 0a11ce03 '!a1b2c3d4'") == ["!a1b2c3d4", "!0a11ce03"]
    with pytest.raises(UsageError, match="eight hexadecimal digits, not 'bob'"):
        answers.node_ids("!a1b2c3d4 bob")


def test_owner_is_bounded_and_printable():
    assert answers.owner("  Anna,  DL1ABC ") == "Anna, DL1ABC"
    for bad in ("x" * 61, "a\x1b[31m"):
        with pytest.raises(UsageError):
            answers.owner(bad)


def test_only_differences_are_written():
    given = Answers(serial_port="auto", owner="", allow=[], base_url="http://127.0.0.1:11434/v1", model="llama3.2")
    data = Settings().model_dump(mode="json")
    assert changes(given, Settings(), data) == {}


def test_old_key_does_not_go_to_another_server(tmp_path):
    """A key is meant for one server."""
    path = tmp_path / "config.yaml"
    path.write_text(FILE)
    settings = load_settings(path, {}).settings
    data = settings.model_dump(mode="json")
    same = changes(Answers(base_url="http://10.0.0.5:11434/v1", model="new"), settings, data)
    other = changes(Answers(base_url="https://cloud.example/v1", model="new"), settings, data)
    assert ("llm", "endpoints", 0, "api_key") not in same
    assert other["llm", "endpoints", 0, "api_key"] == ""
    assert "sk-old-secret" not in apply(FILE, other)


def test_new_key_file_replaces_key_in_the_file(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(FILE)
    settings = load_settings(path, {}).settings
    given = Answers(base_url="http://10.0.0.5:11434/v1", model="qwen3", api_key_file="/etc/k", key="sk-new")
    text = apply(FILE, changes(given, settings, settings.model_dump(mode="json")))
    assert 'api_key: ""\n      api_key_file: /etc/k' in text


def test_admin_entry_replaces_the_nodes_older_one():
    assert answers.with_admin(["!0a11ce03", "!0b0b0004 abc"], "!0a11ce03", "new=") == [
        "!0b0b0004 abc",
        "!0a11ce03 new=",
    ]
