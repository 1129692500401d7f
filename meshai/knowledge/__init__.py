"""Texts that answer without a language model, and the index that finds them."""
