"""Regular expressions in linear time: stop patterns in a stream, and names in a checkpoint."""
