"""How a conversation is printed."""

import io

import pytest

from meshai.demo.printer import Printer, clean, wants_colour


class Terminal(io.StringIO):
    def isatty(self):
        return True


def printed(**options):
    lines = []
    return Printer(lines.append, **options), lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x9b0m", "?[31mred?0m"),
        ("a\x00b\rc\td", "a?b?c?d"),
        ("\u202eright to left", "?right to left"),
        ("line\nbreak", "line\nbreak"),
        ("👨‍👩‍👧 नमस्ते", "👨‍👩‍👧 नमस्ते"),
        ("lone \ud800", "lone ?"),
    ],
)
def test_foreign_text_cannot_steer_a_terminal(text, shown):
    assert clean(text) == shown


@pytest.mark.parametrize(
    ("env", "colour"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": ""}, True)]
)
def test_colours_only_where_they_are_wanted(env, colour):
    assert wants_colour(Terminal(), env) is colour
    assert wants_colour(io.StringIO(), env) is False


def test_long_text_is_wrapped_under_its_name():
    printer, lines = printed(width=60)
    printer.said(65.0, "Alice", "word " * 20, is_bot=False)
    assert lines[0].startswith("   1:05  Alice    word word")
    assert all(line.startswith(" " * 18 + "word") for line in lines[1:])
    assert max(map(len, lines)) <= 60


def test_long_name_does_not_move_the_text():
    printer, lines = printed()
    printer.said(0.0, "A very long name", "hello", is_bot=True)
    assert lines == ["   0:00  A very l hello"]


def test_ascii_reader_gets_no_surprise():
    printer, lines = printed(encoding="ascii")
    printer.detail("✓ delivered — 日本")
    assert lines == [" " * 18 + "+ delivered - ??"]


def test_colour_wraps_text_and_nothing_else():
    printer, lines = printed(colour=True)
    printer.heading("1. Title")
    assert lines == ["", "\x1b[1m1. Title\x1b[0m"]


def test_empty_text_is_still_a_line():
    printer, lines = printed()
    printer.said(0.0, "Bob", "", is_bot=False)
    assert len(lines) == 1
