"""Pebble: the smallest chip, made to be copied. `docs/new_chip.md` leads through it."""
