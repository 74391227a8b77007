"""Stop patterns: regular expressions that end a text, searched in linear time as it streams."""
