"""A conversation over the whole way: phone, air, node, TCP, daemon, HTTP, and back."""

from meshai.llm.scripted import Reply
from meshai.radio.virtual import Fate

LONG = " ".join(f"Sentence number {n} says something about the weather on the mountain." for n in range(1, 8))


async def test_answer_comes_in_marked_parts_with_receipts(world):
    world.server.reply(LONG)
    sent = await world.send(world.alice, "Tell me about the weather, please.")
    await world.until(lambda: len(world.messages(world.alice)) == 3)
    await world.quiet()
    first, second, third = world.messages(world.alice)
    assert [m.text.split(" ")[0] for m in (first, second, third)] == ["[1]", "[2]", "[3/3]"]
    assert (first.reply_id, second.reply_id, third.reply_id) == (sent.packet_id, 0, 0)
    assert all(m.pki and m.size <= 200 for m in (first, second, third))
    assert sent.fate is Fate.ACKED
    assert world.rows("SELECT state, settled_at IS NOT NULL FROM outbound ORDER BY part") == [("delivered", 1)] * 3
    assert world.rows("SELECT role, content FROM messages ORDER BY seq")[0] == ("user", sent.text)


async def test_follow_up_finds_the_conversation_in_its_prompt(world):
    world.server.reply("Noted, Zoe.", "At the north ridge.")
    await world.ask(world.alice, "My name is Zoe and my camp is at the north ridge.")
    assert await world.ask(world.alice, "Where is my camp?") == "At the north ridge."
    prompt = world.server.requests[1].prompt
    assert "my camp is at the north ridge" in prompt
    assert "Noted, Zoe." in prompt
    assert world.server.requests[1].last.rstrip().endswith("Where is my camp?")


async def test_second_person_sees_nothing_of_the_first(world):
    await world.ask(world.alice, "My camp is at the north ridge.")
    await world.ask(world.bob, "Where is the camp?")
    assert "ridge" not in world.server.requests[1].prompt
    assert "ridge" not in world.text(world.bob)
    assert world.value("SELECT count(*) FROM conversations") == 2


async def test_system_prompt_is_the_same_for_everybody(world):
    await world.ask(world.alice, "Hello from Alice")
    await world.ask(world.bob, "Hello from Bob")
    first, second = world.server.requests
    assert first.system == second.system


async def test_memory_survives_a_restart(world):
    await world.ask(world.alice, "My camp is at the north ridge.")
    await world.restart()
    await world.ask(world.alice, "Where is my camp?")
    assert "north ridge" in world.server.requests[1].prompt


async def test_reset_forgets_at_once(world):
    await world.ask(world.alice, "My camp is at the north ridge.")
    assert await world.ask(world.alice, "!reset") == "Cleared 2 messages from your history."
    await world.ask(world.alice, "Where is my camp?")
    assert "ridge" not in world.server.requests[1].prompt
    assert world.value("SELECT count(*) FROM messages WHERE content LIKE '%ridge%'") == 1, "the archive keeps it"


async def test_model_down_is_said_in_one_packet(build):
    world = await build(limits={"per_hour": 1000})
    world.server.rule = lambda prompt: Reply.error(503)
    answer = await world.ask(world.alice, "Hello?")
    assert answer == "The language model is not reachable right now. Please try again later."
    assert len(world.messages(world.alice)) == 1
    assert world.rows("SELECT role FROM messages ORDER BY seq") == [("user",), ("notice",)]


async def test_notice_is_never_shown_to_the_model(world):
    world.server.reply(*[Reply.error(503)] * 3, "Fine.")
    await world.ask(world.alice, "Hello?")
    await world.ask(world.alice, "And now?")
    assert "not reachable" not in world.server.requests[-1].prompt


async def test_more_brings_what_did_not_fit(build):
    world = await build(reply={"max_parts": 1})
    world.server.reply(LONG)
    first = await world.ask(world.alice, "Tell me everything.")
    assert "!more" in first
    more = await world.ask(world.alice, "!more")
    assert "Sentence number" in more
    assert len(world.server.requests) == 1, "the rest was stored, nobody asked again"


async def test_two_questions_at_once_are_answered_together(world):
    """DESIGN §3 Exchange: a DM before the first part joins the question in progress."""
    import asyncio

    gate = asyncio.Event()
    world.server.reply(Reply("first", wait=gate), "both")
    await world.send(world.alice, "One more thing:")
    await world.server.wait_for_requests(1)
    await world.send(world.alice, "what is a relay?")
    await world.server.wait_for_requests(2)
    gate.set()
    await world.quiet()
    assert world.text(world.alice).startswith("both")
    assert "One more thing:" in world.server.requests[1].last
    assert world.rows("SELECT state FROM inbound") == [("answered",), ("answered",)]


async def test_broadcast_is_never_answered(world):
    """§E.2: the bot answers DMs only unless told otherwise."""
    await world.alice.send_channel("hello everybody, what is a relay?")
    assert await world.ask(world.alice, "!ping")
    assert world.server.requests == []
    assert all(m.is_dm for m in world.messages(world.alice))
