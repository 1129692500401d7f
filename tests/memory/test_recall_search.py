"""search() over a real database: scope, scripts, hostile input, broken index."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshai.errors import StorageError
from meshai.memory.search import Hit, search
from meshai.storage import conversations, messages
from meshai.storage.database import Database, Transaction

NOON = 1_748_779_200.0  # 2025-06-01 12:00 UTC, a Sunday
DAY = 86400.0

Line = tuple[Any, ...]
Say = Callable[..., Awaitable[int]]


@pytest.fixture
def say(db: Database) -> Say:
    """Store lines ``text`` or ``(role, text)`` or ``(role, text, keywords)``, a day apart unless told otherwise."""

    async def store(*lines: str | Line, key: str = "dm:!a1b2c3d4", gap: float = DAY, start: float = NOON) -> int:
        async def body(tx: Transaction) -> int:
            conv = await conversations.get_or_create(tx, key, kind="dm", node_id="!a1b2c3d4", now=start)
            for at, line in enumerate(lines):
                role, text, more = (*line, {})[:3] if isinstance(line, tuple) else ("user", line, {})
                await messages.append(tx, conv.id, role=role, content=text, now=start + at * gap, **more)
            return conv.id

        return await db.transaction(body)

    return store


async def find(db: Database, conv_id: int, question: str, *, epoch: int = 0, **more: Any) -> list[str]:
    return [hit.content for hit in await search(db, conv_id=conv_id, epoch=epoch, question=question, **more)]


async def test_finds_what_was_said(db: Database, say: Say) -> None:
    conv = await say("My dog is called Rex", "The antenna hangs in the oak tree", "I had soup for lunch")
    assert (await find(db, conv, "where is the antenna?"))[0] == "The antenna hangs in the oak tree"


async def test_hits_carry_what_a_prompt_shows(db: Database, say: Say) -> None:
    conv = await say(("user", "The code of the shed is 4711", {"sender_name": "Anna"}))
    (hit,) = await search(db, conv_id=conv, epoch=0, question="code of the shed")
    assert hit == Hit(hit.message_id, 0, "user", "Anna", NOON, "The code of the shed is 4711", hit.score)
    assert hit.score > 0


async def test_an_empty_archive_gives_nothing(db: Database) -> None:
    assert await find(db, 1, "where is the antenna?") == []


@pytest.mark.parametrize("question", ["", " ", "?!", "the of and", "\x00", "🙂", "a"])
async def test_a_question_without_words_finds_nothing(db: Database, say: Say, question: str) -> None:
    conv = await say("The antenna hangs in the oak tree")
    assert await find(db, conv, question) == []


async def test_the_answer_beside_the_question_is_found(db: Database, say: Say) -> None:
    conv = await say("Which frequency does the harbour master use?", ("assistant", "156.600 MHz."), "Thanks", gap=30.0)
    assert "156.600 MHz." in (await find(db, conv, "harbour master frequency"))[:2]


async def test_a_neighbour_of_another_day_is_not_raised(db: Database, say: Say) -> None:
    conv = await say("Which frequency does the harbour master use?", "Pizza was fine", gap=DAY)
    assert await find(db, conv, "harbour master frequency") == ["Which frequency does the harbour master use?"]


# --- scope ----------------------------------------------------------------------------------------------------------


async def test_other_conversations_stay_private(db: Database, say: Say) -> None:
    """I11."""
    await say("My secret is the blue heron NG0417", key="dm:!00000001")
    other = await say("I like herons", key="dm:!00000002")
    assert await find(db, other, "what is the secret NG0417 blue heron?") == ["I like herons"]


async def test_an_earlier_epoch_is_not_searched(db: Database, say: Say) -> None:
    """I11: nothing of before !reset."""
    conv = await say("My secret is the blue heron NG0417")
    await db.transaction(
        lambda tx: tx.execute("UPDATE conversations SET epoch = 1, epoch_start_seq = next_seq WHERE id = ?", (conv,))
    )
    await say("A heron flew by", start=NOON + 30)
    assert await find(db, conv, "secret blue heron NG0417", epoch=1) == ["A heron flew by"]


async def test_window_rows_are_left_out(db: Database, say: Say) -> None:
    conv = await say("The heron nests at the lake", "The heron left the lake", "Where is the heron?", gap=30.0)
    assert await find(db, conv, "where is the heron?", exclude_from_seq=1) == ["The heron nests at the lake"]


async def test_commands_and_notices_are_no_memory(db: Database, say: Say) -> None:
    conv = await say(
        ("user", "!remember heron", {"is_command": True}), ("notice", "heron: model down"), ("user", "a heron"), gap=9.0
    )
    assert await find(db, conv, "heron") == ["a heron"]


async def test_a_repeated_text_appears_once_and_newest(db: Database, say: Say) -> None:
    conv = await say("Is the repeater up?", "is the Repeater up", "Is the repeater up?!")
    hits = await search(db, conv_id=conv, epoch=0, question="repeater")
    assert [hit.seq for hit in hits] == [2]


async def test_limit_and_order_are_deterministic(db: Database, say: Say) -> None:
    conv = await say(*(f"heron number {n}" for n in range(40)))
    first = await find(db, conv, "heron number", limit=7)
    assert first == await find(db, conv, "heron number", limit=7)
    assert len(first) == 7
    assert await find(db, conv, "heron", limit=0) == []


async def test_a_deleted_message_is_not_found(db: Database, say: Say) -> None:
    conv = await say("The heron nests at the lake", "我的狗叫小白")
    await db.transaction(lambda tx: tx.execute("DELETE FROM messages"))
    assert await find(db, conv, "heron lake 小白") == []
    assert await db.fetch_value("SELECT count(*) FROM messages_words") == 0
    await db.transaction(
        lambda tx: tx.execute("INSERT INTO messages_fts (messages_fts, rank) VALUES ('integrity-check', 1)")
    )


async def test_a_rebuilt_index_finds_the_same(db: Database, say: Say) -> None:
    conv = await say("我的狗叫小白", "Die Antenne hängt am Mast", "heron")
    before = [await find(db, conv, question) for question in ("小白", "Antenne", "heron")]
    await db.transaction(lambda tx: tx.execute("INSERT INTO messages_fts (messages_fts) VALUES ('rebuild')"))
    assert [await find(db, conv, question) for question in ("小白", "Antenne", "heron")] == before
    assert all(before)


# --- who and when ---------------------------------------------------------------------------------------------------


async def test_my_prefers_the_askers_rows(db: Database, say: Say) -> None:
    conv = await say(("assistant", "A boat needs a radio"), ("user", "A radio for the boat arrived"))
    assert (await find(db, conv, "what about my boat radio?"))[0] == "A radio for the boat arrived"


async def test_did_you_say_prefers_the_assistants_rows(db: Database, say: Say) -> None:
    conv = await say(("assistant", "A boat needs a radio"), ("user", "A boat has a radio"))
    assert (await find(db, conv, "what did you say about the boat radio?"))[0] == "A boat needs a radio"


async def test_a_named_sender_is_preferred(db: Database, say: Say) -> None:
    conv = await say(
        ("user", "Tomorrow we test the repeater", {"sender_name": "Otto Berg"}),
        ("user", "Tomorrow I test the repeater", {"sender_name": "Mia"}),
    )
    assert (await find(db, conv, "what does Otto test with the repeater?"))[0] == "Tomorrow we test the repeater"


async def test_i_means_the_asker_on_a_channel(db: Database, say: Say) -> None:
    conv = await say(("user", "spare battery lent", {"sender": "!1"}), ("user", "spare battery gone", {"sender": "!2"}))
    assert (await find(db, conv, "did I lend a spare battery?", asker="!1"))[0] == "spare battery lent"


async def test_a_date_prefers_messages_of_that_day(db: Database, say: Say) -> None:
    conv = await say(*(f"Tour report {n}" for n in range(20)))
    assert (await find(db, conv, "which tour was on 8 June 2025?"))[0] == "Tour report 7"


async def test_yesterday_alone_finds_what_was_said(db: Database, say: Say) -> None:
    conv = await say(*(f"line {n}" for n in "abcdefgh"))
    assert await find(db, conv, "what happened yesterday?", now=NOON + 4 * DAY) == ["line d"]


async def test_related_words_answer_for_each_other(db: Database, say: Say) -> None:
    conv = await say("Soup again", "We got a kitten and a parrot", "Rain all day")
    assert await find(db, conv, "what pets do we have?") == ["We got a kitten and a parrot"]


async def test_a_typing_error_still_finds_the_name(db: Database, say: Say) -> None:
    conv = await say("Katharina runs the repeater", "The weather is fine")
    assert await find(db, conv, "who is Katarina?") == ["Katharina runs the repeater"]


# --- languages ------------------------------------------------------------------------------------------------------

ARCHIVE = (
    "Моя собака Жучка боится грозы",
    "Антенна висит на высокой берёзе",
    "Meine Schwester wohnt in Garmisch",
    "Die Häuser am See haben Strom aus Solarzellen",
    "我昨天买了一台新的无线电",
    "我的猫叫小白",
    "犬の名前はポチです",
    "来週東京へ行きます",
    "우리 집 고양이 이름은 나비입니다",
    "El perro de mi vecino ladra mucho",
    "เสาอากาศอยู่บนหลังคา",
)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Как зовут мою собаку?", 0),
        ("на какой берёзе антенна?", 1),
        ("Где висит антенну?", 1),
        ("Wo wohnen meine Schwestern?", 2),
        ("welches Haus hat Solarzelle?", 3),
        ("我什么时候买了无线电？", 4),
        ("我的猫叫什么名字?", 5),
        ("犬の名前は何ですか", 6),
        ("いつ東京に行きますか？", 7),
        ("고양이 이름이 뭐예요?", 8),
        ("¿qué hacen los perros del vecino?", 9),
        ("เสาอากาศ อยู่ที่ไหน", 10),
    ],
)
async def test_finds_in_many_languages(db: Database, say: Say, question: str, answer: int) -> None:
    conv = await say(*ARCHIVE)
    assert (await find(db, conv, question))[0] == ARCHIVE[answer]


async def test_a_relative_day_in_other_languages(db: Database, say: Say) -> None:
    conv = await say(*(f"Zeile {n}" for n in "abcdefgh"))
    for question in ("was war gestern?", "что было вчера?", "昨天怎么样？", "昨日は？"):
        assert await find(db, conv, question, now=NOON + 4 * DAY) == ["Zeile d"], question


# --- hostile input --------------------------------------------------------------------------------------------------

HOSTILE = (
    'heron" OR scope:"c1e0',
    "heron AND NOT (",
    "NEAR(heron lake, 5)",
    "scope:c1e0 heron",
    "{scope} : heron ^ * + -",
    "heron*; DROP TABLE messages; --",
    "heron\x00lake",
    '\'heron\' "" "heron',
    "%heron_ \\ heron",
    "heron " * 500,
    "\ud800 heron",
)


@pytest.mark.parametrize("question", HOSTILE)
async def test_search_syntax_in_a_question_is_only_text(db: Database, say: Say, question: str) -> None:
    await say("The heron of somebody else", key="dm:!00000001")
    conv = await say("A heron at the lake", key="dm:!00000002")
    assert await find(db, conv, question) == ["A heron at the lake"]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(question=st.text(max_size=80))
async def test_any_text_is_a_question(db: Database, question: str) -> None:
    await search(db, conv_id=1, epoch=0, question=question, now=NOON, gated=True)


@pytest.mark.parametrize("created_at", [0.0, -1e12, 1e18, NOON])
async def test_impossible_times_do_no_harm(db: Database, say: Say, created_at: float) -> None:
    conv = await say("A heron at the lake", start=created_at)
    assert await find(db, conv, "heron last May", now=NOON) == ["A heron at the lake"]


# --- the gate -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "opens"),
    [
        ("Where did I see the heron?", True),
        ("remind me of the heron", True),
        ("heron lake", True),  # two rare words
        ("heron, nice", False),
        ("Where is the submarine?", False),  # nothing hits
        ("thanks", False),
    ],
)
async def test_the_gate_opens_for_questions(db: Database, say: Say, text: str, opens: bool) -> None:
    """docs/memory.md §2.4: a term hits and it is a question, a cue or two rare words."""
    conv = await say("A heron at the lake")
    assert bool(await find(db, conv, text, gated=True)) is opens


async def test_the_gate_opens_for_related_words_and_dates(db: Database, say: Say) -> None:
    conv = await say("We got a kitten")
    assert await find(db, conv, "which pets do I have?", gated=True) == ["We got a kitten"]
    assert await find(db, conv, "what was on 1 June 2025?", gated=True) == ["We got a kitten"]


async def test_the_question_itself_opens_no_gate(db: Database, say: Say) -> None:
    """It is stored before it is answered; its own words are no hit."""
    conv = await say("A heron at the lake", "zeppelin heron parade")
    assert await find(db, conv, "zeppelin heron parade", gated=True) != []
    assert await find(db, conv, "zeppelin heron parade", gated=True, exclude_from_seq=1) == []


# --- a broken index -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", ["DROP TABLE messages_fts", "DROP TABLE messages_words"])
async def test_without_the_index_rows_are_searched(
    db: Database, say: Say, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    """docs/memory.md §2.7."""
    await say("The heron of somebody else", key="dm:!00000001")
    conv = await say("A heron at the lake", "Моя собака Жучка", "我的猫叫小白", key="dm:!00000002")
    await db.transaction(lambda tx: tx.execute("DROP TABLE messages_words"))
    if harm.endswith("fts"):
        await db.transaction(lambda tx: tx.execute(harm))
    assert await find(db, conv, "where was the heron?") == ["A heron at the lake"]
    assert await find(db, conv, "собаку зовут?") == ["Моя собака Жучка"]
    assert await find(db, conv, "小白") == ["我的猫叫小白"]
    assert "full-text index" in caplog.text
    assert "heron" not in caplog.text


async def test_a_corrupt_index_is_searched_around(db: Database, say: Say) -> None:
    conv = await say("A heron at the lake")

    async def corrupt(tx: Transaction) -> None:
        await tx.execute("UPDATE messages_fts_data SET block = X'00FF00FF' WHERE id > 10")

    await db.transaction(corrupt)
    assert await find(db, conv, "where was the heron?") == ["A heron at the lake"]


async def test_an_unreadable_archive_is_an_error(db: Database, say: Say) -> None:
    conv = await say("A heron at the lake")
    await db.transaction(lambda tx: tx.execute("ALTER TABLE messages RENAME TO elsewhere"))
    with pytest.raises(StorageError):
        await find(db, conv, "heron")


async def test_wildcards_of_like_are_letters(db: Database, say: Say) -> None:
    conv = await say("A heron at the lake", "100 % done")
    await db.transaction(lambda tx: tx.execute("DROP TABLE messages_words"))
    assert await find(db, conv, "% _ %") == []
    assert await find(db, conv, "is it 100% ?") == ["100 % done"]


# --- size -----------------------------------------------------------------------------------------------------------


async def test_common_words_do_not_hide_a_rare_one(db: Database, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """The effort is bounded: the rare word is looked up first, whatever the archive's size."""
    monkeypatch.setattr("meshai.memory.search.MAX_POSTINGS", 20)
    conv = await say(*(f"radio battery test {n}" for n in range(60)), "radio battery test of the Zeppelin", gap=30.0)
    await say(*(f"radio battery test {n}" for n in range(60, 120)), gap=30.0, start=NOON + 30 * DAY)
    assert (await find(db, conv, "radio battery test zeppelin"))[0] == "radio battery test of the Zeppelin"
    assert len(await find(db, conv, "radio battery test", limit=5)) == 5
