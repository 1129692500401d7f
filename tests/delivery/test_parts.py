from __future__ import annotations

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from meshai.delivery.parts import MORE_HINT, REPLACEMENT, cut, size, unmark, whole_sentences

ENGLISH = (
    "The firmware uses a managed flood algorithm. Each node that hears a packet waits for a moment, and if another "
    "node repeats it first, it stays silent. That saves airtime! Is it enough? Mostly, in small networks. "
) * 8
RUSSIAN = (
    "Каждый узел, который слышит пакет, ждёт немного, и если другой узел повторит его раньше, он молчит. Это экономит "
    "время в эфире. Хватит ли этого? В небольших сетях обычно да, а в больших нужно быть осторожнее. "
) * 8
CHINESE = (
    "固件使用受管理的洪泛算法，每个节点都会先等待一会儿，如果别的节点先转发，它就保持沉默。这样可以节省空中时间。" * 12
)
EMOJI = "👨‍👩‍👧‍👦🏳️‍🌈👍🏽☀️" * 30


def joined(text: str) -> str:
    return "".join(text.split())


def words_of(parts: tuple[str, ...]) -> str:
    texts = [unmark(part) for part in parts]
    return joined("".join(text.removesuffix(MORE_HINT) for text in texts))


@pytest.mark.parametrize("text", [ENGLISH, RUSSIAN, CHINESE, EMOJI], ids=["latin", "cyrillic", "cjk", "emoji"])
def test_prose_fills_its_packets(text):
    """M1, A9: bytes are counted, in any script; DESIGN §5: at least 92 %."""
    pieces = cut(text, max_bytes=200, max_parts=99)
    sizes = [size(part) for part in pieces.parts]
    assert max(sizes) <= 200
    assert sum(sizes[:-1]) / len(sizes[:-1]) >= 184
    assert words_of(pieces.parts) == joined(text)


def test_short_text_has_no_mark():
    assert cut("Привет, мир", max_bytes=200, max_parts=3).parts == ("Привет, мир",)


def test_marks_count_the_parts():
    pieces = cut(ENGLISH[:500], max_bytes=200, max_parts=3)
    assert [part[:6] for part in pieces.parts] == ["[1/3] ", "[2/3] ", "[3/3] "]
    assert pieces.rest == ""


def test_cut_answer_says_how_to_go_on():
    """A6: the end of a long answer never vanishes."""
    pieces = cut(ENGLISH, max_bytes=200, max_parts=3)
    assert len(pieces.parts) == 3
    assert pieces.parts[-1].endswith(MORE_HINT)
    assert "!more" in MORE_HINT
    assert words_of(pieces.parts) + joined(pieces.rest) == joined(ENGLISH)


def test_one_part_only_has_hint_without_mark():
    pieces = cut(ENGLISH, max_bytes=200, max_parts=1)
    assert not pieces.parts[0].startswith("[")
    assert pieces.parts[0].endswith(MORE_HINT)


def test_part_ends_at_a_sentence_when_full_enough():
    text = "x" * 100 + " " + "y" * 85 + ". Then more words follow here and so on until the end."
    assert cut(text, max_bytes=200, max_parts=3).parts[0].endswith("y.")


def test_words_stay_whole():
    for part in cut(RUSSIAN, max_bytes=200, max_parts=99).parts:
        assert set(regex.findall(r"\w+", unmark(part))) <= set(regex.findall(r"\w+", RUSSIAN))


def test_url_stays_whole_when_it_fits():
    url = "https://example.org/" + "a/b-c" * 20
    pieces = cut("word " * 30 + url + " end", max_bytes=200, max_parts=5)
    assert any(url in part for part in pieces.parts)


def test_url_larger_than_a_packet_is_cut():
    pieces = cut("https://example.org/" + "a" * 400, max_bytes=200, max_parts=5)
    assert [size(part) for part in pieces.parts[:-1]] == [200, 200]


def test_last_part_takes_what_it_needs():
    text = ("word " * 38 + "end.").strip()
    for extra in range(1, 30):
        parts = cut(text + " " + "z" * extra, max_bytes=200, max_parts=5).parts
        assert len(parts) == 1 or size(parts[-1]) >= 25


def test_grapheme_larger_than_a_packet_is_replaced():
    assert cut("a e" + "\u0301" * 300 + " b", max_bytes=200, max_parts=3).parts == (f"a {REPLACEMENT} b",)


def test_nothing_to_say_has_no_parts():
    assert cut(" \n ", max_bytes=200, max_parts=3).parts == ()


def test_parts_know_their_place_in_the_text():
    pieces = cut(RUSSIAN, max_bytes=200, max_parts=3)
    for part, start in zip(pieces.parts, pieces.starts, strict=True):
        assert pieces.text[start:].startswith(unmark(part).removesuffix(MORE_HINT))


def test_late_answer_counts_on_and_says_why():
    pieces = cut(ENGLISH[:350], max_bytes=200, max_parts=7, first_part=2, prefix="(re your 14:05 question) ")
    assert pieces.parts[0].startswith("[2/3] (re your 14:05 question) The firmware")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("One. Two. Thr", "One. Two."),
        ("no end here", "no end here"),
        ("你好。世界。未完", "你好。世界。"),
        ("Done.", "Done."),
    ],
)
def test_cut_off_text_ends_with_a_sentence(text, kept):
    assert whole_sentences(text) == kept


PIECES = st.sampled_from(
    [
        "a",
        "word ",
        "é",
        "слово ",
        "长",
        "。",
        "👨‍👩‍👧‍👦",
        "🇩🇪",
        "e\u0301",
        "\n",
        " ",
        ". ",
        "https://x.org/abcdef ",
        "ป",
        "x" * 60,
        "\u200d",
    ]
)
TEXTS = st.one_of(st.lists(PIECES, max_size=120).map("".join), st.text(max_size=400))


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.integers(50, 220), st.integers(1, 9))
def test_no_byte_over_and_nothing_lost(text, max_bytes, max_parts):
    text = text.encode("utf-8", "ignore").decode()
    pieces = cut(text, max_bytes=max_bytes, max_parts=max_parts)
    assert len(pieces.parts) <= max_parts
    assert all(size(part) <= max_bytes for part in pieces.parts)
    if not any(len(g.encode()) > max_bytes - 30 for g in regex.findall(r"\X", text)):
        total = len(pieces.parts)
        bare = [part.removeprefix(f"[{n}/{total}] ") for n, part in enumerate(pieces.parts, 1)]
        if pieces.rest:
            bare[-1] = bare[-1].removesuffix(MORE_HINT)
        assert joined("".join(bare) + pieces.rest) == joined(text)


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, min_size=20, max_size=120).map("".join), st.integers(60, 220))
def test_graphemes_are_never_split(text, max_bytes):
    pieces = cut(text, max_bytes=max_bytes, max_parts=9)
    whole = {match.start() for match in regex.finditer(r"\X", pieces.text)}
    assert all(start in whole for start in pieces.starts)
