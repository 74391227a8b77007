"""One file a command: each adds its arguments, parses, then imports what it runs."""
