"""Admin messages from the node's own client: those a bot, an app and the stock command line need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshtastic.protobuf import admin_pb2

from meshai.radio.virtual import handshake, packets
from meshai.radio.virtual.frame import ADMIN, RELIABLE, Error

if TYPE_CHECKING:
    from meshai.radio.virtual.node import VirtualNode


MODULES = len(handshake.module_configs())


class Admin:
    """Local administration is trusted: no session key is asked for, but one is given out (recording 17)."""

    def __init__(self, node: VirtualNode) -> None:
        self._node = node

    def handle(self, packet: Any) -> None:  # noqa: ANN401
        """Do it and answer: with data what asks for data, with ROUTING NONE the rest."""
        node = self._node
        try:
            message = admin_pb2.AdminMessage.FromString(packet.decoded.payload)
        except handshake.DecodeError:
            node.router.tell_client(Error.BAD_REQUEST, packet.id)
            return
        field = message.WhichOneof("payload_variant") or ""
        answer = self._question(field, message)
        if answer is not None:
            self._reply(answer, packet.id)
            return
        error = self._command(field, message)
        told = node.router.tell_client(error, packet.id, hop_limit=node.settings.hop_limit, by_pki=True)
        node.modules.report_state(told)

    def _reply(self, answer: Any, request_id: int) -> None:  # noqa: ANN401
        node = self._node
        if not node.session_key:
            node.session_key = node.rng.randbytes(8)
        answer.session_passkey = node.session_key
        decoded = packets.data(ADMIN, answer.SerializeToString(), request_id=request_id)
        reply = packets.packet(
            node.num,
            node.num,
            node.new_id(),
            decoded,
            rx_time=node.clock(),
            hop_limit=node.settings.hop_limit,
            priority=RELIABLE,
            pki_encrypted=True,
        )
        node.modules.report_state(reply.id)
        node.to_phone.put(reply)

    def _question(self, field: str, message: Any) -> Any:  # noqa: ANN401
        """The answer to a get_…_request, None for everything else."""
        node = self._node
        answer = admin_pb2.AdminMessage()
        if field == "get_owner_request":
            answer.get_owner_response.CopyFrom(node.modules.user())
        elif field == "get_device_metadata_request":
            answer.get_device_metadata_response.CopyFrom(handshake.metadata(node))
        elif field == "get_channel_request":
            answer.get_channel_response.CopyFrom(handshake.channel(node, message.get_channel_request - 1))
        elif field == "get_config_request" and 0 <= message.get_config_request < len(handshake.configs(node)):
            answer.get_config_response.CopyFrom(handshake.configs(node)[message.get_config_request])
        elif field == "get_module_config_request" and 0 <= message.get_module_config_request < MODULES:
            answer.get_module_config_response.CopyFrom(handshake.module_configs()[message.get_module_config_request])
        else:
            return None
        return answer

    def _command(self, field: str, message: Any) -> int:  # noqa: ANN401
        node = self._node
        if field == "set_time_only":
            node.set_clock(message.set_time_only)
        elif field in {"set_favorite_node", "remove_favorite_node"}:
            known = node.database.get(getattr(message, field))
            if known is not None:
                known.favourite = field == "set_favorite_node"
        elif field in {"set_ignored_node", "remove_ignored_node"}:
            known = node.database.get(getattr(message, field))
            if known is not None:
                known.ignored = field == "set_ignored_node"
        elif field == "remove_by_nodenum":
            node.database.forget(message.remove_by_nodenum)
        elif field == "nodedb_reset":
            node.database.clear()
        elif field == "reboot_seconds":
            if message.reboot_seconds >= 0:
                node.reboot(message.reboot_seconds)
        elif field in {"set_owner", "set_channel", "set_config"}:
            return self._configure(field, message)
        elif field not in {"begin_edit_settings", "commit_edit_settings"}:
            return Error.BAD_REQUEST
        return Error.NONE

    def _configure(self, field: str, message: Any) -> int:  # noqa: ANN401
        settings = self._node.settings
        if field == "set_owner":
            settings.long_name = message.set_owner.long_name or settings.long_name
            settings.short_name = message.set_owner.short_name or settings.short_name
            settings.licensed = message.set_owner.is_licensed
        elif field == "set_channel":
            handshake.take_channel(settings, message.set_channel)
        elif message.set_config.HasField("lora") and not handshake.take_lora(settings, message.set_config.lora):
            return Error.BAD_REQUEST
        return Error.NONE
