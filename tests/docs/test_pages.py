"""Pages for people name only what exists: files, settings, commands, subcommands; and numbers the code computes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel
from support.papers import DOCS, ROOT, pages

from meshai.commands.registry import COMMANDS
from meshai.config.model import Settings
from meshai.radio import airtime

WORDS = {word for command in COMMANDS for word in (command.name, *command.aliases)}
PLACEHOLDERS = {"word", "foo", "command", "wait"}
MADE = {DOCS / "commands.md", DOCS / "configuration.md"}  # generated: their own tests compare them
ACK_BYTES = 29  # a ROUTING answer on the air
WRITTEN = {"benchmarks/results.json"}  # by make bench
NODE_ID = re.compile(r"^[0-9a-f]{8}$")


def all_pages():
    return pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)


@all_pages()
def test_relative_links_lead_somewhere(page: Path):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    gone = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not gone


@all_pages()
def test_named_files_of_the_repository_exist(page: Path):
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:meshai|docs|tests|systemd|benchmarks)/[\w./-]*|Makefile|config\.example\.yaml)`", text)
    assert [name for name in named if name not in WRITTEN and not (ROOT / name).exists()] == []


@all_pages()
def test_named_settings_exist(page: Path):
    sections = "|".join(Settings.model_fields)
    named = set(re.findall(rf"`({sections})\.([a-z0-9_]+)(?:\.([a-z0-9_]+))?", page.read_text(encoding="utf-8")))
    unknown = []
    for section, key, sub in named:
        model = Settings.model_fields[section].annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            entry = model.model_fields.get(key)
            inner = entry.annotation if entry is not None else None
            if entry is None or (sub and sub not in getattr(inner, "model_fields", {})):
                unknown.append(f"{section}.{key}.{sub}".rstrip("."))
    assert unknown == []


@pytest.mark.parametrize("page", [page for page in pages() if page not in MADE], ids=lambda page: page.name)
def test_named_radio_commands_exist(page: Path):
    named = set(re.findall(r"`!(\?|[a-z0-9]+)", page.read_text(encoding="utf-8")))
    assert {name for name in named if not NODE_ID.match(name)} - WORDS - PLACEHOLDERS == set()


@pytest.mark.parametrize("name", ["README.md", "docs/commands.md"])
def test_every_radio_command_is_listed(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert [command.name for command in COMMANDS if f"`!{command.name}" not in text] == []


def airtime_rows():
    text = (DOCS / "protocol.md").read_text(encoding="utf-8")
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if re.match(r"\| (SHORT|MEDIUM|LONG)_", line)
    ]


@pytest.mark.parametrize("row", airtime_rows(), ids=lambda row: row[0].split()[0])
def test_airtime_table_is_what_the_code_computes(row):
    modem = airtime.PRESETS[row[0].split()[0]]
    assert row[1] == f"{modem.bandwidth_khz:g} / {modem.spreading_factor} / {modem.coding_rate}"
    frames = [airtime.frame_bytes(size) for size in (50, 100, 200)] + [airtime.MAX_FRAME_BYTES, ACK_BYTES]
    assert [int(cell) for cell in row[2:]] == [round(airtime.time_on_air_ms(size, modem)) for size in frames]


def test_airtime_table_has_the_presets_of_every_release():
    assert {row[0].split()[0] for row in airtime_rows()} <= set(airtime.PRESETS)
    assert len(airtime_rows()) == 9


TEST_FUNCTIONS = {
    path.name: set(re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    for path in (ROOT / "tests").rglob("test_*.py")
}


@all_pages()
def test_named_tests_exist(page: Path):
    named = set(re.findall(r"`(?:tests/\w+/)?(test_\w+\.py)(?:::(test_\w+))?`", page.read_text(encoding="utf-8")))
    gone = [
        f"{file}::{name}"
        for file, name in named
        if file not in TEST_FUNCTIONS or (name and name not in TEST_FUNCTIONS[file])
    ]
    assert sorted(gone) == []


@all_pages()
def test_named_modules_and_their_members_exist(page: Path):
    rooms = "|".join(path.name for path in (ROOT / "meshai").iterdir() if path.is_dir())
    named = set(re.findall(rf"`(?:meshai/)?((?:{rooms})/[\w/]+\.py)(?:::(\w+))?`", page.read_text(encoding="utf-8")))
    gone = []
    for file, member in named:
        path = ROOT / "meshai" / file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if not text or (member and not re.search(rf"^\s*(?:async )?(?:def|class) {member}\b", text, re.MULTILINE)):
            gone.append(f"{file}::{member}")
    assert sorted(gone) == []
