"""Bytes of quantized weights to and from numbers, one file a kind of format."""
