"""Text in and out: chat template, tokenizer, streaming detokenizer, stop strings."""
