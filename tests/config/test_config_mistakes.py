"""Golden texts: what an operator reads when the file is wrong. Every trap is one that YAML really sets."""

import pytest

from meshai.config.document import MAX_BYTES

MANY = """\
bot:
  name: on
  ownr: x
connection:
  type: bluetooth
  tcp_port: "4403"
acces: {}
max_bytes: 3
reply:
  max_bytes: 10
  spacing_s: 5s
  max_bytes: 20
llm:
  endpoints:
    - base_url: ftp://host
      modell: x
      name: a
memory:
  tuning:
    soft_percent: 95
    hard_percent: 90
  compact_every: 1.5
web:
  host: 0.0.0.0
"""


def test_every_mistake_is_told_at_once(mistakes):
    assert mistakes(MANY) == [
        "config.yaml:2:3: bot.name: text is needed (got on); YAML reads on as true; put quotes around it",
        "config.yaml:3:3: bot.ownr: unknown key; did you mean owner?",
        "config.yaml:5:3: connection.type: must be serial, tcp or ble (got 'bluetooth')",
        "config.yaml:6:3: connection.tcp_port: a whole number is needed (got '4403'); remove the quotes",
        "config.yaml:7:1: acces: unknown key; did you mean access?",
        "config.yaml:8:1: max_bytes: unknown key; did you mean reply.max_bytes?",
        "config.yaml:10:3: reply.max_bytes: must be at least 50 (got 10)",
        "config.yaml:11:3: reply.spacing_s: a number is needed (got '5s'); write only the number, without a unit",
        "config.yaml:12:3: reply.max_bytes: given twice, in line 10 and line 12",
        (
            "config.yaml:15:7: llm.endpoints.0.base_url: must begin with http:// or https:// and have no spaces"
            " (got 'ftp://host')"
        ),
        "config.yaml:15:7: llm.endpoints.0.model: missing",
        "config.yaml:16:7: llm.endpoints.0.modell: unknown key; did you mean model?",
        "config.yaml:20:5: memory.tuning.soft_percent: must be below hard_percent (95 >= 90)",
        "config.yaml:22:3: memory.compact_every: a whole number is needed (got 1.5)",
        "config.yaml:24:3: web.host: others can reach '0.0.0.0': set web.token, or use host: 127.0.0.1",
    ]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (
            "bot:\n  owner: !a1b2c3d4\n",
            '2:3: bot.owner: put quotes around the node id: "!a1b2c3d4" (a bare ! is a YAML tag)',
        ),
        (
            "access:\n  allow: [!a1b2c3d4, !b1b2c3d4]\n",
            '2:11: a value that begins with ! must be in quotes, for example "!a1b2c3d4" (a bare ! is a YAML tag)',
        ),
        (
            "access:\n  allow: [!a1b2c3d4]\n  block: []\n",
            '2:11: a value that begins with ! must be in quotes, for example "!a1b2c3d4" (a bare ! is a YAML tag)',
        ),
        (
            "access:\n  admins:\n    - !a1b2c3d4 AAAA\n",
            '3:7: access.admins.0: put quotes around the node id: "!a1b2c3d4" (a bare ! is a YAML tag)',
        ),
        ("bot: {owner: @me}", "1:14: a value that begins with @ must be in quotes"),
        ("bot:\n  owner: `me`", "2:10: a value that begins with ` must be in quotes"),
        ("bot:\n  owner: %me", "2:10: a value that begins with % must be in quotes"),
        ("bot:\n  owner: *me", "2:10: a value that begins with * must be in quotes"),
        (
            "bot:\n  owner: #me",
            "2:3: bot.owner: no value: what follows a # is a comment; put a text that begins with # in quotes",
        ),
        ("bot:\n  owner:", '2:3: bot.owner: no value; write "" for an empty text, or remove the line'),
        ("llm:\n  endpoints:", "2:3: llm.endpoints: no value; write [] for none, or remove the line"),
        (
            "bot:\n  owner: 00123456",
            ("2:3: bot.owner: YAML reads 00123456 as the number 42798 (octal); quote it, or leave the leading 0 out"),
        ),
        (
            "limits:\n  queue: 010",
            "2:3: limits.queue: YAML reads 010 as the number 8 (octal); quote it, or leave the leading 0 out",
        ),
        (
            "memory:\n  idle_s: 10:30",
            (
                "2:3: memory.idle_s: YAML reads 10:30 as the number 630 (base 60);"
                " put quotes around it, or write the plain number"
            ),
        ),
        (
            "access:\n  block: [0x1a2b3c4d]",
            (
                '2:11: access.block.0: a node id looks like "!a1b2c3d4", in quotes;'
                " YAML reads 0x1a2b3c4d as the number 439041101; put quotes around it"
            ),
        ),
        (
            "access:\n  allow: ['!a1b2']",
            "2:11: access.allow.0: a node id looks like \"!a1b2c3d4\", eight hexadecimal digits (got '!a1b2')",
        ),
        (
            "reply:\n  ttl_s: 1.5e2",
            "2:3: reply.ttl_s: a number is needed (got '1.5e2'); YAML reads 1.5e2 as text; write the number out",
        ),
        ("reply:\n  ttl_s: yes", "2:3: reply.ttl_s: a number is needed (got yes)"),
        (
            "reply:\n  spacing_s: 2,5",
            "2:3: reply.spacing_s: a number is needed (got '2,5'); write a point, not a comma",
        ),
        ("reply:\n  spacing_s: .nan", "2:3: reply.spacing_s: .nan is not a usable number"),
        ("limits:\n  queue: 20.0", "2:3: limits.queue: a whole number is needed (got 20.0); write 20"),
        ("memory:\n  enabled: 'yes'", "2:3: memory.enabled: true or false is needed, without quotes (got 'yes')"),
        ("bot:\n\tname: x", "2:1: a tab; YAML is indented with spaces only"),
        (
            "bot:\n  name: a: b",
            "2:10: a text with ': ' in it must be in quotes (or: wrong indentation, or no space after a ':' above)",
        ),
        ("bot:\n  name: 'a", "2:11: a quotation mark is missing: the text never ends"),
        ("bot: {name: a", "1:14: a comma or the closing bracket is missing"),
        ("bot:\n    name: a\n  owner: b", "3:3: the indentation does not match the lines above"),
        ("bot: {}\n---\nlog: {}", "2:1: a second document begins here; a configuration has only one"),
        ("bot: \x07", "1:6: the control character U+0007 is not allowed in YAML"),
        ("- a\n- b", "1:1: the file must consist of sections such as `bot:`, this is a list"),
        ("hello", "1:1: the file must consist of sections such as `bot:`, this is a single value"),
        ("log: debug", "1:1: log: a section is needed, with its keys indented below it (got 'debug')"),
        ("bot: &b\n  name: [*b]", "1:6: bot.name.0: this alias contains itself"),
        ("[" * 5000, "1:31: nested too deeply"),
        ("channels: [bot]", "1:12: channels.0: a section is needed, with its keys indented below it (got 'bot')"),
        ("bot: {name: ''}", "1:7: bot.name: must not be empty"),
        ("bot: {name: 'a b'}", "1:7: bot.name: may contain letters, digits, _ and - only (got 'a b')"),
        ("connection: {type: ble}", "1:1: connection.ble_address: needed for connection.type ble"),
        (
            "airtime: {slow_at_percent: 50}",
            "1:11: airtime.slow_at_percent: must not be above hold_at_percent (50 > 40)",
        ),
        (
            "memory: {tuning: {shares: {window: 90}}}",
            "1:19: memory.tuning.shares: the shares together must not pass 100 percent (they are 145)",
        ),
    ],
)
def test_trap_is_explained(mistakes, content, line):
    assert mistakes(content)[0] == f"config.yaml:{line}"


def test_equal_endpoint_names_are_refused(mistakes):
    entry = "{name: a, base_url: 'http://x/v1', model: m}"
    assert mistakes(f"llm:\n  endpoints:\n  - {entry}\n  - {entry}\n") == [
        "config.yaml:4:6: llm.endpoints.1.name: endpoint 1 has this name, too"
    ]


def test_rules_between_settings_show_beside_other_mistakes(mistakes):
    lines = mistakes("memory:\n  tuning: {soft_percent: 80, hard_percent: 80, max_activ: 3}\n")
    assert [line.split(" ")[1] for line in lines] == ["memory.tuning.soft_percent:", "memory.tuning.max_activ:"]


def test_rule_is_silent_when_its_other_half_is_wrong(mistakes):
    """The token is there, only not as text: "set web.token" would be nonsense."""
    assert mistakes("web:\n  host: 0.0.0.0\n  token: 12345678\n") == [
        "config.yaml:3:3: web.token: the token must be text, in quotes"
    ]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"x" * (MAX_BYTES + 1), "the file has 1,000,001 bytes, a configuration has at most 1,000,000"),
        (b"\xff\xfeb\x00o\x00t\x00", "the file is UTF-16; save it as UTF-8"),
    ],
)
def test_unreadable_bytes_are_refused(mistakes, content, line):
    assert mistakes(content) == [f"config.yaml: {line}"]


def test_wrong_encoding_names_the_place(mistakes):
    assert mistakes("bot:\n  owner: Jürgen\n".encode("latin-1")) == [
        "config.yaml:2:11: the byte 0xfc is not UTF-8; save the file as UTF-8"
    ]


def test_alias_bomb_is_refused_quickly(mistakes):
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    lines += [f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]
    assert "unfold to more than 20,000 values" in mistakes("\n".join(lines))[0]


SECRET = "sk-verysecret0123456789"


@pytest.mark.parametrize(
    "content",
    [
        f"llm: {{endpoints: [{{name: a, base_url: 'http://x', model: 5, api_key: {SECRET}}}]}}",
        f"llm: {{endpoints: {{api_key: {SECRET}}}}}",
        f"llm: {{endpoints: [{{api_key: [{SECRET}]}}]}}",
        f"llm: {{endpoints: [{{name: a, base_url: 'ftp://user:{SECRET}@host', model: m}}]}}",
        f"llm:\n  endpoints:\n  - api_key: !{SECRET}\n",
        f"llm:\n  endpoints:\n  - api_key: @{SECRET}\n",
        f"llm:\n  endpoints:\n  - api_key: '{SECRET}\n",
        f"llm:\n  endpoints:\n  - apikey: {SECRET}\n    extra_body: {SECRET}\n",
        f"web:\n  token: {{a: {SECRET}}}\n",
        "llm:\n  endpoints:\n  - api_key: 012345670123\n",
    ],
)
def test_no_error_echoes_a_secret(mistakes, content):
    text = "\n".join(mistakes(content))
    assert SECRET not in text
    assert "012345670123" not in text
    assert str(0o12345670123) not in text


def test_wrong_secret_in_the_environment_is_not_echoed(mistakes):
    assert mistakes("", MESHAI_LLM__ENDPOINTS=f"[{{name: a, api_key: {SECRET}, model: @x") == [
        "environment: MESHAI_LLM__ENDPOINTS: a value that begins with @ must be in quotes"
    ]


def test_wrong_key_does_not_hide_its_neighbours(mistakes):
    lines = mistakes("<<: {a: 1}\nbot:\n  <<: {b: 2}\n  nam: x\n")
    assert [line.split(":")[1] for line in lines] == ["1", "3", "4"]
