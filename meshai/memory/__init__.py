"""What the bot remembers: an archive, summaries and facts derived from it, and prompts under a hard budget.

``docs/memory.md`` explains the design; ``memory.memory.Memory`` is what the rest of the program uses.
"""
