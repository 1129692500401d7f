"""One answer at a time for a person, joined while nothing is sent, fair between persons (field.md Z-M8)."""

import asyncio

from meshai.conversation.responder import Responder
from meshai.conversation.router import Route, RouteKind
from meshai.identity import Person, Standing
from meshai.inbox import Question


def question(text, node="!00000001", number=1):
    person = Person(node, None, 1, Standing.NUMBER)
    return Question(number, person, Route(RouteKind.CHAT, text), number, number, 0.0)


class Model:
    """Answers when told to; remembers what it was asked."""

    def __init__(self, *, settle_first=False):
        self.asked, self.answered, self.gate = [], [], asyncio.Event()
        self.settle_first = settle_first

    async def answer(self, turn):
        texts = [q.route.text for q in turn.questions]
        self.asked.append(texts)
        turn.settled = self.settle_first
        await self.gate.wait()
        turn.settled = True
        self.answered.append(texts)


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_second_thought_joins_the_answer_in_progress():
    model = Model()
    responder = Responder(model.answer, parallel=1, max_waiting=lambda: 20)
    responder.submit(question("one"))
    await settle()
    responder.submit(question("two"))
    await settle()
    model.gate.set()
    await settle()
    assert model.asked == [["one"], ["one", "two"]]
    assert model.answered == [["one", "two"]]


async def test_fifth_text_is_the_next_question():
    model = Model()
    responder = Responder(model.answer, parallel=1, max_waiting=lambda: 20)
    for text in "abcde":
        responder.submit(question(text))
        await settle()
    model.gate.set()
    await settle()
    assert model.answered == [["a", "b", "c", "d"], ["e"]]


async def test_nothing_joins_after_the_first_part():
    model = Model(settle_first=True)
    responder = Responder(model.answer, parallel=1, max_waiting=lambda: 20)
    responder.submit(question("one"))
    await settle()
    responder.submit(question("two"))
    model.gate.set()
    await settle()
    assert model.answered == [["one"], ["two"]]


async def test_persons_take_turns():
    model = Model(settle_first=True)
    model.gate.set()
    responder = Responder(model.answer, parallel=1, max_waiting=lambda: 100)
    for node in ("!00000001", "!00000002", "!00000003"):
        for text in "abcde":  # the first four join, the fifth is a turn of its own
            responder.submit(question(f"{node[-1]}{text}", node))
    await settle()
    await settle()
    await settle()
    assert [texts[0][0] for texts in model.answered] == ["1", "2", "3", "1", "2", "3"] or [
        texts[0][0] for texts in model.answered[:3]
    ] == ["1", "2", "3"]
    assert sum(len(texts) for texts in model.answered) == 15


async def test_full_queue_refuses_politely():
    model = Model(settle_first=True)
    responder = Responder(model.answer, parallel=1, max_waiting=lambda: 2)
    accepted = [responder.submit(question("x", f"!0000000{i}")) for i in range(4)]
    assert accepted == [True, True, True, False]
    assert responder.waiting == 2
    await responder.close()


async def test_stop_ends_the_answer_and_drops_what_waits():
    model = Model()
    responder = Responder(model.answer, parallel=1, max_waiting=lambda: 20)
    responder.submit(question("one"))
    await settle()
    dropped = await responder.stop(question("!stop"))
    assert [q.route.text for q in dropped] == ["one"]
    assert responder.in_progress == 0
    responder.submit(question("next"))
    model.gate.set()
    await settle()
    assert model.answered == [["next"]]


async def test_failure_of_one_answer_does_not_stop_the_next(caplog):
    async def answer(turn):
        if turn.last.route.text == "bad":
            raise ValueError("boom")
        done.append(turn.last.route.text)

    done = []
    responder = Responder(answer, parallel=1, max_waiting=lambda: 20)
    responder.submit(question("bad"))
    responder.submit(question("good", "!00000002"))
    await settle()
    await settle()
    assert done == ["good"]
    assert "answering !00000001 failed" in caplog.text
