"""Reading a question, dates, stems, and the pure scoring."""

from __future__ import annotations

import sqlite3
from datetime import UTC, date, datetime

import pytest

from meshai.memory.dates import Mention, day_of, mentions
from meshai.memory.question import read_question, wants_recall
from meshai.memory.recall import Candidate, Weights, Worth, inverse_frequency, reached, score_rows, spread
from meshai.memory.related import related
from meshai.memory.stem import stem
from meshai.memory.words import fold, grams, is_near, language, pieces

NOW = datetime(2025, 6, 18, 12, tzinfo=UTC).timestamp()  # a Wednesday


def row(seq: int, content: str, *, role: str = "user", at: float = NOW) -> Candidate:
    return Candidate(seq + 100, seq, role, "", "", at, content)


STEMMED = (
    "caresses ponies ties cats feed agreed plastered bled motoring sing conflated troubled sized hopping tanned falling"
    " hissing fizzed failing filing happy sky relational conditional rational valency digitizer radically differently"
    " analogously vietnamization predication operator feudalism decisiveness hopefulness callousness formality"
    " sensitivity sensibility triplicate formative formalize electricity electrical hopeful goodness revival allowance"
    " inference airliner gyroscopic adjustable defensible irritant replacement adjustment dependent adoption homologou"
    " communism activate angularity homologous effective bowdlerize probate rate cease controll roll batteries antennas"
    " repeaters frequencies flying flies died dying by sees ss s ed ing yes eye generously organization meetings"
)


def test_stems_are_those_of_the_index() -> None:
    index = sqlite3.connect(":memory:")
    index.execute("CREATE VIRTUAL TABLE t USING fts5 (word, tokenize = 'porter unicode61')")
    index.execute("CREATE VIRTUAL TABLE v USING fts5vocab (t, instance)")
    index.executemany("INSERT INTO t (rowid, word) VALUES (?, ?)", list(enumerate(STEMMED.split())))
    found = dict(index.execute("SELECT doc, term FROM v"))
    assert {word: stem(word) for word in STEMMED.split()} == {w: found[n] for n, w in enumerate(STEMMED.split())}


@pytest.mark.parametrize(
    "word", ["Ärger", "naïve", "ĳ", "Đà", "Ёлка", "йод", "東京", "İstanbul", "façade", "ñandú", "ở"]
)
def test_folding_is_that_of_the_index(word: str) -> None:
    index = sqlite3.connect(":memory:")
    index.execute("CREATE VIRTUAL TABLE t USING fts5 (word, tokenize = 'unicode61 remove_diacritics 2')")
    index.execute("INSERT INTO t VALUES (?)", (word,))
    assert index.execute("SELECT count(*) FROM t WHERE t MATCH ?", (f'"{fold(word)}"',)).fetchone() == (1,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Where is my dog?", "en"),
        ("Wo ist mein Hund?", "de"),
        ("Où est mon chien ?", "fr"),
        ("Где моя собака?", "ru"),
        ("QTH JN58", "en"),
    ],
)
def test_function_words_tell_the_language(text: str, expected: str) -> None:
    assert language(text) == expected


def test_letter_pairs_do_not_reach_over_function_words() -> None:
    assert grams("我的猫叫小白") == ["猫叫", "叫小", "小白"]
    assert grams("犬の名前はポチです") == ["犬", "名前", "ポチ"]


def test_pieces_split_where_the_script_changes() -> None:
    assert pieces("radio無線5W a_b") == ["radio", "無線", "5W", "a", "b"]


@pytest.mark.parametrize(("one", "other"), [("abcd", "abxd"), ("abcd", "abd"), ("abcd", "abdc"), ("abcd", "abcde")])
def test_one_letter_apart_is_near(one: str, other: str) -> None:
    assert is_near(one, other)
    assert is_near(other, one)
    assert not is_near(one, other + "zz")


def test_related_words_go_the_way_they_are_listed() -> None:
    assert related(stem("pets"))[stem("dog")] == "dog"
    assert stem("pet") not in related(stem("dog"))
    assert related("nonsense") == {}


def test_a_name_chooses_rows_and_is_no_word() -> None:
    question = read_question("What did Anna say about the mast?", ["Anna Berg", "Otto"])
    assert question.named == {"Anna Berg"}
    assert [term.text for term in question.terms] == ["mast"]


@pytest.mark.parametrize(
    ("text", "author"),
    [
        ("what is my callsign", "user"),
        ("Wie heißt mein Hund?", "user"),
        ("我的猫叫什么", "user"),
        ("what did you tell me about it", "assistant"),
        ("Was hast du mir empfohlen?", "assistant"),
        ("что ты мне советовал?", "assistant"),
        ("who won", ""),
    ],
)
def test_whose_words_are_asked_for(text: str, author: str) -> None:
    assert read_question(text).author == author


@pytest.mark.parametrize(
    ("text", "wants"),
    [("When did we meet?", "time"), ("Wie viele Knoten?", "number"), ("Сколько узлов?", "number"), ("Who?", "")],
)
def test_the_kind_of_answer_is_read(text: str, wants: str) -> None:
    assert read_question(text).wants == wants


@pytest.mark.parametrize(
    ("question", "counts", "opens"),
    [
        ("where is it?", {"it": 3}, True),
        ("where is it?", {"it": 0}, False),
        ("where is it?", {}, False),
        ("the heron", {"heron": 1}, False),
        ("heron lake", {"heron": 1, "lake": 2}, True),
        ("radio battery", {"radio": 900, "battery": 800}, False),
        ("помнишь озеро", {"озеро": 900}, True),
    ],
)
def test_gate(question: str, counts: dict[str, int], opens: bool) -> None:
    """docs/memory.md §2.4."""
    assert wants_recall(question, counts) is opens
    assert wants_recall(question, list(counts.values())) is opens


def span(first: date, last: date) -> Mention:
    return Mention(first=first, last=last)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on 8 May 2023", Mention(2023, 5, 8)),
        ("May 8th, 2023", Mention(2023, 5, 8)),
        ("in May", Mention(None, 5, None)),
        ("last May", Mention(2025, 5, None)),
        ("last August", Mention(2024, 8, None)),
        ("am 3. Oktober", Mention(None, 10, 3)),
        ("3 октября 2024", Mention(2024, 10, 3)),
        ("2024-10-03", Mention(2024, 10, 3)),
        ("03.10.2024", Mention(2024, 10, 3)),
        ("2024年10月3日", Mention(2024, 10, 3)),
        ("in 2021", Mention(2021)),
        ("yesterday", span(date(2025, 6, 17), date(2025, 6, 17))),
        ("3 days ago", span(date(2025, 6, 15), date(2025, 6, 15))),
        ("last week", span(date(2025, 6, 9), date(2025, 6, 15))),
        ("last month", span(date(2025, 5, 1), date(2025, 5, 31))),
        ("two years ago", span(date(2023, 1, 1), date(2023, 12, 31))),
        ("last Sunday", span(date(2025, 6, 15), date(2025, 6, 15))),
        ("letzten Mittwoch", span(date(2025, 6, 11), date(2025, 6, 11))),
    ],
)
def test_dates_are_read(text: str, expected: Mention) -> None:
    assert mentions(text, NOW) == [expected]


@pytest.mark.parametrize(
    "text", ["may I ask", "you may go", "march on", "433.2024 MHz", "call 20231", "13.13.2024", "hi"]
)
def test_what_is_no_date(text: str) -> None:
    assert mentions(text, NOW) == []


def test_an_unset_clock_knows_no_yesterday() -> None:
    """docs/memory.md §2.8 item 8: a Pi starts in 1970."""
    assert mentions("yesterday", 0.0) == []
    assert mentions("last May", 0.0) == [Mention(None, 5, None)]


def test_impossible_times_are_of_no_day() -> None:
    assert day_of(1e18) is None
    assert day_of(NOW) == date(2025, 6, 18)


def test_a_mention_names_the_days_in_the_index() -> None:
    assert Mention(2023, 5, 8).matches() == ['"2023 m05 d08"']
    assert span(date(2025, 5, 31), date(2025, 6, 1)).matches() == ['"2025 m05 d31"', '"2025 m06 d01"']
    assert span(date(2025, 5, 1), date(2025, 5, 31)).matches() == ['"2025 m05"']
    assert Mention().matches() == []


def test_rare_words_are_worth_more() -> None:
    assert inverse_frequency(1000, 1) > inverse_frequency(1000, 500) > 0
    assert inverse_frequency(10, 99) > 0


def test_a_word_counts_once_from_its_nearest_place() -> None:
    scores = {5: {"heron": 2.0}, 6: {"heron": 2.0, "lake": 1.0}}
    result = spread(scores, {5: NOW, 6: NOW}, Weights(neighbours=(0.5,)))
    assert result == {4: 1.0, 5: 2.5, 6: 3.0, 7: 1.5}
    assert reached(7, scores, {5: NOW, 6: NOW, 7: NOW}, Weights(neighbours=(0.5,))) == 1.5
    assert reached(7, scores, {5: NOW, 6: NOW, 7: NOW + 9999}, Weights(neighbours=(0.5,))) == 0.0


def test_a_related_word_counts_less_than_the_word() -> None:
    question = read_question("which pets?")
    worth = Worth({"pet": 3.0}, {"dog": 3.0})
    scores = score_rows(question, [row(1, "my pet"), row(2, "my dog"), row(3, "my car")], worth)
    assert scores[1]["pet"] > scores[2]["pet"] > 0
    assert 3 not in scores
