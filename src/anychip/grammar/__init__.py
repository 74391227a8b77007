"""Structured output: a schema, a regex or a grammar becomes masks of allowed tokens."""
