from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshai.delivery.plain import PlainStream, clean, to_plain


@pytest.mark.parametrize(
    "text",
    [
        "2*3*4 = 24 and 2**3**4",
        "__init__ and snake_case_name",
        "a < b > c",
        "1. Boil water\n2. Add salt",  # A7
        "f(*args, **kwargs)",
        "*.py and *.txt",
        "|a| + |b|",
        "5 * 3 = 15, 4 * 2 = 8",
        "> 5 km is far",
        "Plan: call 112 now!",  # A7
        "Привет, 20°C 👍",  # A8
        "👨‍👩‍👧 family",
        "~5 km, 100% sure #1",
        "C:\\temp\\new",
        "unclosed **bold and *star",
        "a\n\nb",
    ],
)
def test_literal_text_stays(text):
    assert to_plain(text) == text


@pytest.mark.parametrize(
    ("markdown", "plain"),
    [
        ("**Bold** and *it* and ***both***", "Bold and it and both"),
        ("**Note:** __very important__ _text here_", "Note: very important text here"),
        ("这是**重点**内容", "这是重点内容"),
        ("# Head\ntext\n\n\n\nmore", "Head\ntext\n\nmore"),
        ("Title\n=====\ntext\n---\nend", "Title\ntext\nend"),
        ("```python\nx = a*b*c  # **no**\n```\nend", "x = a*b*c  # **no**\nend"),
        ("`__init__` and `a*b*c`", "__init__ and a*b*c"),
        ("* a\n+ b\n  - c\n• d", "- a\n- b\n - c\n- d"),
        ("| a | b |\n|---|:-:|\n| 1 | **2** |\nafter", "a: b\n1: 2\nafter"),
        ("| a | b | c |\n|-|-|-|\n| 1 | 2 | 3 |", "a | b | c\n1 | 2 | 3"),
        ("see [the docs](https://x.org/a_b_c)", "see the docs (https://x.org/a_b_c)"),
        ("[https://x.org](https://x.org) <https://y.org>", "https://x.org https://y.org"),
        ("![map](http://a.b/m.png)", "map (http://a.b/m.png)"),
        ("> quoted\n> more", "quoted\nmore"),
        ("a\\*b\\*c", "a*b*c"),
        ("**see https://x.org/a_b** and `a\\*b` or \\*c\\*", "see https://x.org/a_b and a\\*b or *c*"),
        ("`first` \\* `last` http://x.org/a_b_c", "first * last http://x.org/a_b_c"),
    ],
)
def test_markup_goes(markdown, plain):
    assert to_plain(markdown) == plain


def test_dangerous_characters_go():
    assert to_plain("\x1b[31mred\x1b[0m \ud800x\x00y\u202e z\x9b1m") == "red xy z1m"
    assert to_plain("a\r\nb\tc\rd") == "a\nb c\nd"


def test_markup_alone_is_nothing():
    assert to_plain("---\n\n```\n```\n   \n") == ""


@given(st.text(max_size=200))
def test_result_is_always_safe(text):
    plain = to_plain(text)
    assert plain == clean(plain)
    plain.encode("utf-8")


WORDS = st.lists(
    st.sampled_from(
        [
            "**bold**",
            "*it*",
            "word",
            "2*3",
            "`co de`",
            "[a](http://x.y)",
            "snake_case",
            "\n",
            "- x",
            "# h",
            "|",
            "\n\n",
            "2 * 3",
            "a < b",
            "[1]",
            "<http://a.b>",
            "**",
            "*",
        ]
    ),
    max_size=40,
)


@given(WORDS, st.integers(1, 7))
def test_stream_gives_what_the_whole_gives(words, step):
    text = " ".join(words)
    stream = PlainStream()
    pieces = [stream.feed(text[at : at + step]) for at in range(0, len(text), step)]
    assert "".join([*pieces, stream.close()]).strip() == to_plain(text)


def test_stream_lets_prose_out_before_the_line_ends():
    stream = PlainStream()
    assert stream.feed("One two three **fo") == "One two three"
    assert stream.feed("ur** five six") == " four five"
    assert stream.feed(" seven! 2 * 3 < 7 [1] eight") == " six seven! 2 * 3 < 7 [1]"
