"""Models on disk, read and checked; and networks as functions over operators."""
