import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshai.llm.cleanup import Cleaner, Sanitizer, clean

THINKING = {
    "<think>plan</think>Hi": "Hi",
    "<think>\nplan\n</think>\n\nHi": "Hi",
    "<THINKING>a</THINKING>b": "b",
    "Hello <think>secret</think>world": "Hello world",
    "<think>never closed": "",
    "Yes. <think>never closed": "Yes.",
    "<think><think>a</think>b": "b",
    "[THINK]a[/THINK]b": "b",
    "<|START_THINKING|>a<|END_THINKING|>b": "b",
    "◁think▷a◁/think▷b": "b",
    "<|channel>thought\nabc<channel|>Hi": "Hi",
    "<|channel|>analysis<|message|>We need<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>": "Hi",
    "<|channel|>final<|message|>Hi": "Hi",
    "analysisWe need to greet.assistantfinalHello": "Hello",
    "Hi<|im_end|>": "Hi",
}
CONTENT = [
    "a < b and c > d",
    "<thinker> and <thinks>",
    "2 < 3",
    "tail <thi",
    "the `<think>` tag",
    'say "</think>" to end',
    "analysis of the data",
    "[THINKING] aloud",
    "5 [TH",
    "<|odd|> token",
    "if x<think: pass",
]


@pytest.mark.parametrize(("raw", "visible"), THINKING.items())
def test_thinking_is_removed(raw, visible):
    assert clean(raw) == visible


@pytest.mark.parametrize("text", CONTENT)
def test_content_that_looks_like_thinking_stays(text):
    assert clean(text) == text


@pytest.mark.parametrize("raw", [*THINKING, *CONTENT])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_splitting_into_chunks_changes_nothing(raw, size):
    cleaner = Cleaner()
    pieces = [cleaner.feed(raw[at : at + size]) for at in range(0, len(raw), size)]
    assert ("".join(pieces) + cleaner.end()).strip() == clean(raw)


def test_orphaned_closing_tag_hides_what_was_before_it():
    assert clean("I should say hello.</think>Hello") == "Hello"


def test_orphaned_closing_tag_is_told_when_text_was_already_out():
    cleaner = Cleaner()
    assert cleaner.feed("I should say hello. ") == "I should say hello. "
    cleaner.feed("</think>Hello")
    assert cleaner.think.orphan


def test_held_back_text_comes_after_the_closing_tag():
    cleaner = Cleaner(hold=True)
    assert [cleaner.feed("plan plan"), cleaner.feed("</think>"), cleaner.feed("Hello")] == ["", "", "Hello"]
    assert not cleaner.think.orphan


def test_terminal_escapes_and_controls_are_removed():
    raw = "a\x1b[31mred\x1b[0m b\x1b]0;title\x07c\x00\x7f\x9b2Jd\x1bMe\u202ef\tg\r\nh"
    assert clean(raw) == "ared bcdef\tg\nh"


def test_escape_split_over_pieces_is_removed():
    sanitizer = Sanitizer()
    assert sanitizer.feed("a\x1b[3") + sanitizer.feed("1mb") + sanitizer.end() == "ab"


def test_surrogate_halves_are_joined_or_dropped():
    sanitizer = Sanitizer()
    assert sanitizer.feed("x\ud83d") + sanitizer.feed("\ude00y\ud83d") + sanitizer.end() == "x😀y"


@given(st.lists(st.text(st.characters(), max_size=8)))
def test_whatever_comes_can_be_encoded_and_printed(pieces):
    cleaner = Cleaner()
    text = "".join(cleaner.feed(piece) for piece in pieces) + cleaner.end()
    text.encode("utf-8")
    assert not any((ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160 for char in text)


@given(st.text("<think/>|[]THINK abc", max_size=40))
def test_pieces_of_one_character_equal_the_whole(raw):
    whole, single = Cleaner(), Cleaner()
    expected = whole.feed(raw) + whole.end()
    got = "".join(single.feed(char) for char in raw) + single.end()
    if not single.think.orphan:
        assert got == expected
