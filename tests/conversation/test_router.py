"""Only ``!`` and a word make a command; prose is never mistaken for one (field.md M6, M7)."""

import pytest

from meshai.conversation.router import RouteKind, route_channel, route_dm


@pytest.mark.parametrize(
    ("text", "word", "argument"),
    [
        ("!help", "help", ""),
        ("!HELP Reset", "help", "Reset"),
        ("  !ping  ", "ping", ""),
        ("!?", "?", ""),
        ("!again 2", "again", "2"),
        ("!remember two\nlines", "remember", "two\nlines"),
        ("!summary_status", "summary_status", ""),
    ],
)
def test_bang_and_word_is_a_command(text, word, argument):
    route = route_dm(text)
    assert (route.kind, route.word, route.text) == (RouteKind.COMMAND, word, argument)


@pytest.mark.parametrize(
    "text",
    [
        "History of Rome in two lines",
        "test my knowledge of Latin",
        "help",
        "ask: is 10:30 UTC same as 12:30 CEST?",
        "!!",
        "! wait",
        "!5 things",
        "!help!",
        "wow!",
        "/reset",
    ],
)
def test_prose_stays_prose_word_for_word(text):
    route = route_dm(text)
    assert (route.kind, route.text) == (RouteKind.CHAT, text)


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\u2003"])
def test_white_space_is_nothing(text):
    assert route_dm(text).kind is RouteKind.IGNORE


def test_channel_needs_a_mention():
    assert route_channel("what is a node?", "ai", mention_only=True).kind is RouteKind.IGNORE
    assert route_channel("@aid what?", "ai", mention_only=True).kind is RouteKind.IGNORE
    route = route_channel("@AI: what is a node?", "ai", mention_only=True)
    assert (route.kind, route.text) == (RouteKind.CHAT, "what is a node?")


def test_channel_commands_need_the_mention_too():
    assert route_channel("!ping", "ai", mention_only=False).kind is RouteKind.IGNORE
    assert route_channel("@ai !ping", "ai", mention_only=True).word == "ping"


def test_bot_name_is_no_pattern():
    assert route_channel("@a1 x", "a.", mention_only=True).kind is RouteKind.IGNORE
