"""Whatever a model says, the person gets clean packets or one short notice, and the next question works."""

import pytest
from support.e2e_world import DISCLOSURE, MARK

from meshai.llm.scripted import Reply

FAMILY = "👨‍👩‍👧‍👦"
ZALGO = "a" + "\u0301" * 200
"""One grapheme of 401 bytes: larger than a packet, so it becomes a replacement character."""
EMPTY = "The language model gave an empty answer. Please ask in other words."
CLEAN = {
    "3000 characters": ("The weather is fine today. " * 112)[:3000],
    "cyrillic": "Погода в горах сегодня хорошая, но к вечеру обещают дождь. " * 12,
    "cjk": "今天山上的天气很好，但是傍晚可能会下雨。" * 20,
    "family emoji": FAMILY * 40,
    "one giant grapheme": ZALGO,
    "lone surrogate": "before \ud800 after",
    "control characters": "one\x00 two\x07 three\x1b[31m four\x9b five",
    "markdown table": "| node | hops |\n|---|---|\n| **A** | 1 |\n| B | 2 |\n",
    "format string": "%s %n {0} {x} ${y} \\N{BEL}",
    "begins with an exclamation mark": "!reset is a command",
}
SILENT = {
    "empty": Reply(""),
    "white space": Reply(" \n\t "),
    "only thinking": Reply("<think>Let me see. The user wants to know"),
    "only reasoning": Reply.thinking("Let me see."),
    "garbage": Reply.garbage(),
    "no choices": Reply("x", no_choices=True),
}


@pytest.mark.parametrize("text", CLEAN.values(), ids=CLEAN.keys())
async def test_strange_text_arrives_clean_and_short(build, text):
    world = await build(reply={"max_parts": 9})
    world.server.reply(Reply(text, pieces=(text,)), "Second answer.")
    await world.ask(world.alice, "Go on.")
    messages = world.messages(world.alice)
    assert messages
    for message in messages:
        assert message.size <= 200
        assert "\ud800" not in message.text
        assert not any(ord(char) < 32 and char != "\n" for char in message.text)
        assert "\x9b" not in message.text
        assert not message.text.startswith("!")
    assert await world.ask(world.alice, "Are you well?") == "Second answer."


async def test_family_is_never_torn(build):
    world = await build(reply={"max_parts": 9})
    world.server.reply(FAMILY * 40)
    await world.ask(world.alice, "Show me families.")
    assert len(world.messages(world.alice)) > 1
    for message in world.messages(world.alice):
        assert DISCLOSURE.sub("", MARK.sub("", message.text)).replace(FAMILY, "").strip() in ("", "… send !more")


async def test_thinking_is_left_out(world):
    world.server.reply("<think>The user asks for the height.</think>The hill is 300 m high.")
    assert (await world.ask(world.alice, "How high?")).startswith("The hill is 300 m high.")


@pytest.mark.parametrize("reply", SILENT.values(), ids=SILENT.keys())
async def test_no_answer_is_one_notice(world, reply):
    world.server.rule = lambda prompt: reply
    await world.ask(world.alice, "Hello?")
    (notice,) = world.messages(world.alice)
    assert notice.text.startswith("The language model")
    assert world.rows("SELECT role FROM messages ORDER BY seq") == [("user",), ("notice",)]
    world.server.rule = lambda prompt: "Back again."
    assert "Back again." in await world.ask(world.alice, "And now?")


async def test_stream_that_breaks_after_the_first_part_is_closed(world):
    """DESIGN §3: what was sent stays, one closing part says that the rest is missing."""
    text = "The mountain is high and the weather is good. " * 8
    world.server.reply(Reply(text, break_after=60))
    world.server.rule = lambda prompt: Reply.error(503)
    answer = await world.ask(world.alice, "Tell me.")
    assert answer.startswith("The mountain is high")
    assert world.rows("SELECT count(*) FROM messages WHERE role = 'assistant'") == [(1,)]
