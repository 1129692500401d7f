"""The offline answerer: what it says, and what it never says."""

import pytest

from meshai.errors import ModelUnavailableError
from meshai.knowledge.passages import built_in, parse, split_sentences
from meshai.llm.base import ChatMessage, ChatRequest, Purpose, Recalled
from meshai.llm.offline import NO_MODEL, OfflineAnswerer

CAMP = "My name is Zoe and my camp is at the north ridge."


@pytest.fixture
def said():
    """What the person wrote earlier."""
    return []


@pytest.fixture
def model(clock, said, calls):
    async def recall(conv_id, question):
        return list(said)

    return OfflineAnswerer(clock=clock, recall=recall, on_call=calls.append)


@pytest.fixture
def tell(model):
    async def build(question, *history, conv_id=1, max_tokens=220, **more):
        roles = ("user", "assistant")
        messages = [ChatMessage(roles[n % 2], text) for n, text in enumerate(history)]
        messages.append(ChatMessage("user", f"[now Monday 10:00][from Zoe] {question}"))
        request = ChatRequest(tuple(messages), max_tokens, question=question, conv_id=conv_id, **more)
        return (await model.complete(request)).text

    return build


QUESTIONS = {
    "What hop limit should I use?": "Leave the hop limit at 3",
    "hop limit": "Leave the hop limit at 3",
    "Welches Hop-Limit soll ich nehmen?": "Leave the hop limit at 3",
    "which preset is best": "Use what the other nodes",
    "should my roof node be a ROUTER?": "CLIENT",
    "What do the ticks mean?": "Only the acknowledgement of the receiver",
    "is my DM encrypted?": "Direct messages are encrypted",
    "how do I get more range": "Height and a free line of sight",
    "what is SNR": "SNR tells",
    "how long can a message be?": "200 bytes",
    "what can you do": "!help",
    "What does !again do?": "!again",
    "how long does the battery last": "nRF52",
    "how much airtime may I use in europe": "10 percent",
}


@pytest.mark.parametrize("question", QUESTIONS)
async def test_answers_practical_questions_from_the_texts(tell, question):
    answer = await tell(question)
    assert QUESTIONS[question] in answer
    assert NO_MODEL in answer
    assert len(answer.encode()) <= 200


@pytest.mark.parametrize(
    "question",
    [
        "What is the capital of France?",
        "Who won the world cup in 2022?",
        "What is the weather tomorrow?",
        "how far is the moon?",
        "Write me a poem about cats?",
        "%s{} {0} %(x)d?",
        "'; DROP TABLE users; --?",
        'texts MATCH "NEAR(" OR *?',
        "<|endoftext|>?",
        "\x1b[31m\ud83d?",
    ],
)
async def test_says_so_when_nothing_fits(tell, question):
    answer = await tell(question)
    assert "nothing on that" in answer
    assert len(answer.encode()) <= 200


async def test_detail_fills_several_parts(tell):
    answer = await tell("Explain the LoRa presets in detail")
    assert 400 < len(answer.encode()) <= 600
    assert answer.endswith(".")


async def test_detail_keeps_to_max_tokens(tell):
    assert len((await tell("Explain the LoRa presets in detail", max_tokens=80)).encode()) <= 200


async def test_every_sentence_comes_from_a_text(tell):
    answer = (await tell("Explain roles in detail")).removeprefix(f"{NO_MODEL}. From my notes: ")
    known = {sentence for passage in built_in() for sentence in passage.sentences}
    assert set(split_sentences(answer)) <= known


@pytest.mark.parametrize("text", [CAMP, "I parked the truck at trailhead 3", "we leave at dawn", "My node is a router"])
async def test_acknowledges_what_it_is_told(tell, text):
    answer = await tell(text)
    assert answer.startswith("Noted.")
    assert NO_MODEL in answer


async def test_promises_no_memory_where_there_is_none(tell):
    assert "nothing is kept" in await tell(CAMP, conv_id=0)


@pytest.mark.parametrize(
    "question",
    ["What is my name?", "what's my name", "Where is my camp?", "who am I?", "What did I tell you about my camp?"],
)
async def test_quotes_the_persons_own_words_with_the_time(tell, said, clock, question):
    said.append(Recalled(clock.now() - 86400 * 3, "", CAMP))
    answer = await tell(question)
    assert "You wrote on 2027-01-12 at" in answer
    assert f'"{CAMP}"' in answer
    assert NO_MODEL in answer


async def test_quotes_what_the_prompt_shows(tell):
    assert f'You wrote earlier: "{CAMP}"' in await tell("Where is my camp?", CAMP, "Noted.")


async def test_newest_statement_comes_first(tell, said, clock):
    said += [
        Recalled(clock.now() - 999, "", "My camp is at the lake"),
        Recalled(clock.now() - 99, "", "My camp is on the hill"),
    ]
    answer = await tell("Where is my camp?")
    assert answer.index("hill") < answer.index("lake")


async def test_own_earlier_questions_and_commands_are_no_answers(tell, said, clock):
    said += [Recalled(clock.now(), "", "Where is my camp?"), Recalled(clock.now(), "", "!remember camp")]
    assert "find nothing like that" in await tell("Where is my camp?")


async def test_half_fitting_statement_is_not_quoted(tell, said, clock):
    said.append(Recalled(clock.now(), "", CAMP))
    assert "Zoe" not in await tell("What is my dog's name?")


async def test_other_people_are_named(tell, said, clock):
    said.append(Recalled(clock.now(), "Max", "The camp is at the lake"))
    assert "Max wrote" in await tell("where is our camp?")


async def test_unset_clock_gives_no_time(tell, said, clock):
    said.append(Recalled(1000.0, "", CAMP))
    clock.time = 2000.0
    assert "You wrote earlier" in await tell("Where is my camp?")


async def test_more_goes_on_with_the_last_question(tell):
    answer = await tell("tell me more", "What hop limit should I use?", f"{NO_MODEL}. …")
    assert "hop limit" in answer
    assert len(answer.encode()) > 300


@pytest.mark.parametrize(("text", "answer"), [("hello", "Hello!"), ("Hi there!", "Hello!"), ("thanks!", "welcome")])
async def test_is_polite(tell, text, answer):
    assert answer in await tell(text)


async def test_without_the_question_it_reads_the_last_message(model):
    message = ChatMessage("user", "[now Monday 10:00][from Zoe] What is SNR?")
    assert "SNR tells" in (await model.complete(ChatRequest((message,), 100))).text


async def test_broken_recall_costs_no_answer(clock, caplog):
    async def broken(conv_id, question):
        raise RuntimeError("no such table")

    model = OfflineAnswerer(clock=clock, recall=broken)
    request = ChatRequest((ChatMessage("user", "x"),), 100, question="Where is my camp?", conv_id=1)
    assert "find nothing" in (await model.complete(request)).text


async def test_streams_in_several_deltas(model, ask):
    deltas = [delta async for delta in model.stream(ask("What hop limit should I use?"))]
    assert len(deltas) >= 3
    assert deltas[-1].finish.endpoint == "offline"


async def test_never_summarises(model, ask):
    with pytest.raises(ModelUnavailableError):
        await model.complete(ask(purpose=Purpose.SUMMARIZE))


async def test_is_what_it_says_it_is(model, ask, calls):
    await model.complete(ask("hi"))
    assert (model.is_offline, model.leaves_house, await model.context_tokens()) == (True, False, 8192)
    assert model.status()["answers"] == 1
    assert calls[0].endpoint == "offline"
    await model.aclose()


def test_every_text_is_sourced_and_its_first_sentence_fits_a_packet():
    for passage in built_in():
        assert passage.title
        assert passage.source
        assert passage.keywords
        assert len(passage.sentences[0].encode()) <= 150, passage.heading


def test_passages_are_cut_at_headings():
    text = "# T\nSource: s\n\n## A\nKeywords: k\n\nOne. Two.\n\n## B\n\nThree 3.5 is 3. Yes"
    assert [(p.heading, p.keywords, p.sentences) for p in parse(text)] == [
        ("A", "k", ["One.", "Two."]),
        ("B", "", ["Three 3.5 is 3.", "Yes"]),
    ]
