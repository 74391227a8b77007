"""Chips, one folder each: registration, operators, memory, build. Found by entry point."""
