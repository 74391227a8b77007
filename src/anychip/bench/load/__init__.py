"""Loading any OpenAI-compatible server: what is asked, when, and how the answers came."""
