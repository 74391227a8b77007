"""AnyChip: an LLM serving engine whose core never knows which chip it runs on."""

__version__ = "0.1.0"
