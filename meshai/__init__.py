"""MeshAI: a chatbot daemon for Meshtastic."""

__version__ = "0.1.0"
