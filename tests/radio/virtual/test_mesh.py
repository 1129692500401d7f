"""Flooding, acknowledgements, retransmissions, loss and keys, in protocol time moved by hand."""

import pytest

from meshai.radio.virtual import ChannelSettings, Fate, Link, Mesh, NodeSettings, Phone, Timeline


async def test_dm_over_a_relay_is_acknowledged_for_real(chain):
    """§3.3: first the relay is overheard, then the destination answers."""
    mesh = chain(3)
    fates = []
    mesh.first.on_receipt = lambda sent: fates.append(sent.fate)
    await mesh.first.send_dm(mesh.nodes[-1], "hello")
    mesh.wait(30)
    assert fates == [Fate.RELAYED, Fate.ACKED]
    assert (mesh.last.received[0].text, mesh.last.received[0].hops, mesh.last.received[0].pki) == ("hello", 1, True)


@pytest.mark.parametrize(("length", "arrives"), [(5, True), (6, False)])
async def test_hop_limit_ends_the_flood(chain, length, arrives):
    mesh = chain(length)  # hop limit 3: three relays between two ends
    await mesh.first.send_dm(mesh.nodes[-1], "far")
    mesh.wait(60)
    assert bool(mesh.texts) is arrives


async def test_duplicates_are_filtered_until_reboot():
    """§2.4: the filter is the node's memory, lost when it reboots."""
    mesh = Mesh(timeline=Timeline())
    a, b = mesh.add(), mesh.add()
    mesh.link(a, b)
    mesh.introduce()
    phone, from_a = Phone(b), Phone(a)
    sent = await from_a.send_dm(b, "once")
    mesh.timeline.advance(30)
    _again(a, b, sent.packet_id)
    mesh.timeline.advance(30)
    assert len(phone.received) == 1
    b.reboot()
    mesh.timeline.advance(60)
    _again(a, b, sent.packet_id)
    mesh.timeline.advance(30)
    assert [m.packet_id for m in phone.received] == [sent.packet_id] * 2


def _again(a, b, packet_id):
    from meshai.radio.virtual import packets

    packet = packets.text(b.num, "once")
    packet.id = packet_id
    a.send(packet)


async def test_silent_peer_ends_in_max_retransmit(chain):
    """§9.10: about 21 s on the default preset, three transmissions."""
    mesh = chain(2)
    mesh.nodes[1].switch_off()
    sent = await mesh.first.send_dm(mesh.nodes[1], "are you there")
    mesh.wait(60)
    assert (sent.fate, sent.error) == (Fate.FAILED, "MAX_RETRANSMIT")
    assert sent.took_s == pytest.approx(21.4, abs=0.5)
    assert mesh.nodes[0].radio.frames_sent == 3


async def test_relay_hides_that_the_peer_is_off(chain):
    """§9.1: implicit acknowledgement, and never a NAK afterwards."""
    mesh = chain(3)
    mesh.nodes[2].switch_off()
    sent = await mesh.first.send_dm(mesh.nodes[2], "lost")
    mesh.wait(300)
    assert sent.fate is Fate.RELAYED


async def test_retransmissions_beat_a_lossy_link(chain):
    delivered = 0
    for seed in range(40):
        mesh = chain(2, seed=seed, loss=0.4)
        sent = await mesh.first.send_dm(mesh.nodes[1], "try")
        mesh.wait(60)
        assert len(mesh.texts) <= 1
        delivered += len(mesh.texts)
        assert sent.fate is not Fate.ACKED or mesh.texts == ["try"]
    assert 33 <= delivered < 40  # 1 - 0.4^3 = 94 %


async def test_same_seed_gives_the_same_story(chain):
    async def story():
        mesh = chain(4, seed=9, loss=0.3)
        for number in range(5):
            await mesh.first.send_dm(mesh.nodes[-1], f"message {number}")
            mesh.wait(20)
        return [(m.text, m.at, m.packet_id) for m in mesh.last.received]

    assert await story() == await story()


async def test_broadcast_reaches_everybody_once(chain):
    mesh = chain(4)
    middle = Phone(mesh.nodes[1])
    sent = await mesh.first.send_channel("to all")
    mesh.wait(60)
    assert [m.text for m in middle.received] == mesh.texts == ["to all"]
    assert not mesh.last.received[0].pki
    assert sent.fate is Fate.RELAYED


async def test_mute_node_does_not_relay(chain):
    mesh = chain(3, role="CLIENT_MUTE")
    await mesh.first.send_dm(mesh.nodes[2], "through?")
    mesh.wait(60)
    assert mesh.texts == []


async def test_channel_of_strangers_stays_closed():
    mesh = Mesh(timeline=Timeline())
    secret = [ChannelSettings(), ChannelSettings("club", b"k" * 32)]
    a, member = (mesh.add(NodeSettings(channels=list(secret))) for _ in range(2))
    outsider = mesh.add()
    for node in (member, outsider):
        mesh.link(a, node)
    mesh.introduce()
    phones = [Phone(member), Phone(outsider)]
    await Phone(a).send_channel("psst", channel=1)
    mesh.timeline.advance(20)
    assert [[(m.text, m.channel) for m in phone.received] for phone in phones] == [[("psst", 1)], []]


async def test_old_peer_acknowledges_no_reply_over_a_relay(chain):
    """§3.3: firmware < 2.7.12 and a text with reply_id."""
    mesh = chain(3)
    mesh.nodes[2].settings.firmware = "2.7.11.ee68575"
    sent = await mesh.first.send_dm(mesh.nodes[2], "plain")
    mesh.wait(30)
    reply = await mesh.first.send_dm(mesh.nodes[2], "as a reply", reply_id=7)
    mesh.wait(60)
    assert mesh.texts == ["plain", "as a reply"]
    assert (sent.fate, reply.fate) == (Fate.ACKED, Fate.RELAYED)


@pytest.mark.parametrize(
    ("size", "reply_id", "error"), [(220, 0, ""), (221, 0, "TOO_LARGE"), (215, 9, ""), (216, 9, "TOO_LARGE")]
)
async def test_dm_size_is_limited(chain, size, reply_id, error):
    """§1"""
    mesh = chain(2)
    sent = await mesh.first.send_dm(mesh.nodes[1], "x" * size, reply_id=reply_id)
    mesh.wait(30)
    assert (sent.error, len(mesh.texts)) == (error, 0 if error else 1)


async def test_unknown_peer_key_is_refused_at_once(chain):
    mesh = chain(2)
    mesh.nodes[0].database.forget(mesh.nodes[1].num)
    sent = await mesh.first.send_dm(mesh.nodes[1], "who?")
    assert (sent.fate, sent.error) == (Fate.FAILED, "PKI_SEND_FAIL_PUBLIC_KEY")


async def test_peer_without_our_key_learns_it(chain):
    """§9.4: its refusal makes our node introduce itself, a resend works."""
    mesh = chain(2)
    mesh.wait(100)
    mesh.nodes[1].database.forget(mesh.nodes[0].num)
    first = await mesh.first.send_dm(mesh.nodes[1], "first")
    mesh.wait(10)
    second = await mesh.first.send_dm(mesh.nodes[1], "second")
    mesh.wait(20)
    assert (first.error, second.fate) == ("PKI_UNKNOWN_PUBKEY", Fate.ACKED)
    assert mesh.last.received[0].encrypted


async def test_rekeyed_peer_is_locked_out_until_removed(chain):
    """§9.5, §9.1: NO_CHANNEL both ways; after removal the next refusal brings its new NodeInfo."""
    mesh = chain(2)
    bot, user = mesh.nodes
    user.rekey()
    mesh.wait(100)  # its NodeInfo passes by; ours refuses the new key
    assert bot.database.key_of(user.num) != user.public_key
    user.meet(bot)
    to_bot, to_user = await mesh.last.send_dm(bot, "new key"), await mesh.first.send_dm(user, "old key")
    mesh.wait(40)
    assert (to_bot.error, to_user.error) == ("NO_CHANNEL", "NO_CHANNEL")
    assert mesh.first.received[-1].encrypted

    bot.database.forget(user.num)
    refused = await mesh.last.send_dm(bot, "after removal")
    mesh.wait(90)
    assert refused.error == "PKI_UNKNOWN_PUBKEY"
    assert bot.database.key_of(user.num) == user.public_key
    answered = await mesh.last.send_dm(bot, "again")
    mesh.wait(40)
    assert (answered.fate, mesh.first.received[-1].text) == (Fate.ACKED, "again")


@pytest.mark.parametrize(("firmware", "text"), [("2.7.13.0", "legacy"), ("2.7.26.0", "")])
async def test_legacy_dm_depends_on_firmware(chain, firmware, text):
    """§6: taken by <= 2.7.13, unopened and refused later."""
    mesh = chain(2)
    mesh.nodes[0].settings.licensed = True  # ham mode: its node encrypts nothing
    mesh.nodes[1].settings.firmware = firmware
    sent = await mesh.first.send_dm(mesh.nodes[1], "legacy")
    mesh.wait(30)
    message = mesh.last.received[0]
    assert (message.text, message.pki, message.encrypted) == (text, False, not text)
    assert (sent.fate is Fate.ACKED) is bool(text)


async def test_tapback_arrives_as_emoji(chain):
    mesh = chain(2)
    sent = await mesh.first.send_dm(mesh.nodes[1], "question")
    mesh.wait(20)
    await mesh.last.tapback(mesh.nodes[0], sent.packet_id)
    mesh.wait(20)
    got = mesh.first.received[-1]
    assert (got.text, got.emoji, got.reply_id) == ("👍", True, sent.packet_id)


async def test_duty_cycle_refuses_and_says_when(chain):
    """§3.2: 10 % of an hour in EU_868."""
    mesh = chain(2, region="EU_868")
    node = mesh.nodes[0]
    mesh.first.close()
    while not (error := _send_long(mesh)):
        mesh.wait(8)
    assert error == 9
    items = [node.to_phone.take() for _ in range(40)]
    notice = next(item[1] for item in items if item and item[0] == "clientNotification")
    assert "You can send again in" in notice.message
    assert 10.0 < node.radio.log.air_util_tx() < 10.2
    node.settings.override_duty_cycle = True
    assert _send_long(mesh) == 0


def _send_long(mesh):
    from meshai.radio.virtual import packets

    return mesh.nodes[0].send(packets.text(mesh.nodes[1].num, "x" * 200, want_ack=False))


async def test_jammed_channel_fills_the_queue(chain):
    """§3.6: 16 places; then nothing less important gets in."""
    mesh = chain(2)
    node = mesh.nodes[0]
    mesh.wait(60)
    node.radio.jammed = True
    results = [_send_long(mesh) for _ in range(18)]
    assert (results, node.queue_free) == ([0] * 16 + [32] * 2, 0)
    node.radio.unjam()
    mesh.wait(120)
    assert (node.queue_free, len(mesh.texts)) == (16, 16)


async def test_mqtt_text_is_marked_and_unproven(chain):
    mesh = chain(1)
    mesh.nodes[0].from_mqtt(0xABCD, "from the internet")
    assert (mesh.first.received[0].text, mesh.first.received[0].pki) == ("from the internet", False)


async def test_utilisation_is_what_was_on_the_air(chain):
    mesh = chain(2)
    mesh.wait(200)
    sent = await mesh.first.send_dm(mesh.nodes[1], "x" * 150, want_ack=False)
    mesh.wait(10)
    for node in mesh.nodes:
        assert node.radio.log.channel_utilization() == pytest.approx(sent.airtime_ms / 600, rel=0.01)
    assert mesh.nodes[1].radio.log.air_util_tx() < mesh.nodes[0].radio.log.air_util_tx()


async def test_weak_link_one_way_only(chain):
    mesh = Mesh(timeline=Timeline())
    a, b = mesh.add(), mesh.add()
    mesh.link(a, b, Link(snr=-12.0), both_ways=False)
    mesh.introduce()
    phone = Phone(b)
    sent = await Phone(a).send_dm(b, "heard but not answered")
    mesh.timeline.advance(60)
    assert ([m.text for m in phone.received], sent.error) == (["heard but not answered"], "MAX_RETRANSMIT")
