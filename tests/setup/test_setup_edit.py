"""Setting values in a configuration's text: the rest of the file stays as it is, byte by byte."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from meshai.config.document import parse
from meshai.config.example import example
from meshai.errors import UsageError
from meshai.setup.edit import apply, inline

OLD = """\
# my bot
bot:
    owner: "Anna"   # that is me
    name: ai        # short

llm:
    endpoints:
        - name: home   # the big computer
          base_url: http://10.0.0.5:11434/v1
          # loaded at night
          model: qwen3
        - name: cloud
          base_url: https://example.org/v1
          model: big
# the end
"""


def test_value_changes_and_comments_keep_their_column():
    new = apply(OLD, {("bot", "owner"): "Bo"})
    assert new == OLD.replace('"Anna"   # that is me', "Bo       # that is me")


def test_longer_value_pushes_its_comment():
    assert 'owner: "Anna and Bert"  # that is me' in apply(OLD, {("bot", "owner"): "Anna and Bert"})


def test_value_in_list_entry_changes_alone():
    new = apply(OLD, {("llm", "endpoints", 0, "model"): "llama3.2"})
    assert new == OLD.replace("qwen3", "llama3.2")


def test_new_key_follows_the_last_of_its_section():
    new = apply(OLD, {("llm", "endpoints", 0, "api_key_file"): "/etc/k", ("bot", "system_prompt"): "x"})
    assert "model: qwen3\n          api_key_file: /etc/k\n        - name: cloud" in new
    assert "name: ai        # short\n    system_prompt: x\n\nllm:" in new


def test_new_section_goes_to_the_end():
    new = apply(OLD, {("access", "allow"): ["!0a11ce03"]})
    assert new == OLD.replace("# the end\n", "").rstrip("\n") + '\n\naccess:\n  allow: ["!0a11ce03"]\n# the end\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "access:\n  require_pki: false\n"),
        ("# nothing yet\n", "# nothing yet\n\naccess:\n  require_pki: false\n"),
        ("access:\n", "access:\n  require_pki: false\n"),
        ("access:  # later\nbot:\n", "access:  # later\n  require_pki: false\nbot:\n"),
        ("access: {}\n", "access: {require_pki: false}\n"),
        ("access: {favourite: true} # x\n", "access: {require_pki: false, favourite: true} # x\n"),
        ("access:\n  require_pki: # empty\n", "access:\n  require_pki: false  # empty\n"),
        ("access:\r\n  require_pki: true\r\n", "access:\r\n  require_pki: false\r\n"),
        ("access:\n  favourite: true", "access:\n  favourite: true\n  require_pki: false\n"),
        ("access:\r\n  favourite: true\r\n", "access:\r\n  favourite: true\r\n  require_pki: false\r\n"),
        ("\ufeffaccess:\n  require_pki: true\n", "\ufeffaccess:\n  require_pki: false\n"),
    ],
)
def test_every_way_to_write_a_section(before, after):
    assert apply(before, {("access", "require_pki"): False}) == after


def test_block_list_becomes_another_list():
    text = 'access:\n  allow:\n    - "!00000001"  # a\n    - "!00000002"  # b\n  # who is out\n  block: []\n'
    assert apply(text, {("access", "allow"): []}) == "access:\n  allow: []\n  # who is out\n  block: []\n"


def test_model_section_without_endpoints_gets_them_as_lines():
    new = apply(
        "bot:\n  name: x\n", {("llm", "endpoints"): [{"name": "local", "base_url": "http://h/v1", "model": "m"}]}
    )
    assert new.endswith("llm:\n  endpoints:\n    - name: local\n      base_url: http://h/v1\n      model: m\n")


def test_multiline_text_before_a_new_key():
    text = "bot:\n  system_prompt: |\n    be brief\n    be kind\nreply:\n  max_parts: 2\n"
    new = apply(text, {("bot", "owner"): "A"})
    assert new == text.replace("kind\n", "kind\n  owner: A\n")


def test_alias_that_would_change_elsewhere_is_refused():
    text = 'access:\n  allow: &all ["!00000001"]\n  block: *all\n'
    with pytest.raises(UsageError, match=r"set by hand: access\.block"):
        apply(text, {("access", "block"): ["!00000002"]})


def test_section_that_is_no_section_is_refused():
    with pytest.raises(UsageError, match="section is needed"):
        apply("bot: hello\n", {("bot", "owner"): "A"})


def test_example_keeps_every_comment():
    def comments(text):
        return [line.partition("# ")[2] for line in text.splitlines()]

    changes = {("bot", "owner"): "Anna, DL1ABC", ("connection", "serial_port"): "/dev/serial/by-id/usb-x"}
    assert comments(apply(example(), changes)) == comments(example())


TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=30)


@given(TEXT)
def test_any_text_comes_back_the_same(text):
    """Quoting: names with colons, hashes, quotes, percent signs, leading signs, and words YAML has a meaning for."""
    assert yaml.safe_load(f"a: {inline(text)}") == {"a": text}
    assert yaml.safe_load(f"a: {inline([text])}") == {"a": [text]}


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from([("bot", "owner"), ("connection", "tcp_host"), ("llm", "endpoints", 0, "model")]), TEXT
    ),
    st.sampled_from([OLD, example(), example().replace("\n", "\r\n"), "llm: {endpoints: [{name: a}]}\n"]),
)
def test_any_change_reads_back_and_changes_nothing_else(changes, text):
    before, after = parse(text.encode()), parse(apply(text, changes).encode())
    assert not after.mistakes
    touched = {path[:n] for path in changes for n in range(len(path) + 1)}
    for path in before.spots.keys() - touched:
        assert value(after.data, path) == value(before.data, path)
    assert all(value(after.data, path) == wanted for path, wanted in changes.items())


def value(data, path):
    for part in path:
        data = data[part]
    return data
