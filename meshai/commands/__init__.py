"""The ``!commands``: one module each, and their registry."""
