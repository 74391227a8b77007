"""A proxy before any OpenAI-compatible server that passes everything on and records requests."""
