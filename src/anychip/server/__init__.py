"""HTTP in, stream out: the OpenAI and the native protocol over one engine."""
