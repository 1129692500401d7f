"""The token ledger (issue of strangers holding the operator's key by radio: field.md D.2)."""

from support.inbox_world import ZOE

from meshai.llm.base import CallRecord, ChatMessage, ChatRequest, Outcome, Purpose, Usage
from meshai.storage import conversations, tokens


def call(conv_id, *, prompt=100, completion=20, tokens_est=0):
    request = ChatRequest((ChatMessage("user", "hello"),), 100, conv_id=conv_id, tokens_est=tokens_est)
    return CallRecord(Purpose.REPLY, "local", "m", Outcome.OK, request, Usage(prompt, completion))


async def test_calls_are_booked_for_the_node_and_day(world):
    now = world.clock.now()

    async def body(tx):
        conv = await conversations.get_or_create(tx, f"dm:{ZOE}", kind="dm", node_id=ZOE, now=now)
        await tokens.add(tx, call(conv.id), now=now)
        await tokens.add(tx, call(conv.id, prompt=0, completion=5, tokens_est=50), now=now)
        await tokens.add(tx, call(0), now=now)

    await world.db.transaction(body)
    assert await tokens.spent(world.db, ZOE, now=now) == (175, 295)
    assert await tokens.spent(world.db, ZOE, now=now + 86400) == (0, 0)
    assert [row["node_id"] for row in await tokens.on_day(world.db, now)] == [ZOE, ""]
