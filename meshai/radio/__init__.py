"""The radio room: the only one that imports meshtastic, pubsub or serial."""
