"""What an answer's text means: reasoning, tool calls, plain text; read as it streams."""
