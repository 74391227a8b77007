"""What is too long is refused before it is tokenized; what is long leaves the event loop alone."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from anychip.server.texts import Texts

# The longest token of the test vocabulary, <|im_start|>, has 12 bytes; the context is 256 tokens.
MOST = 12 * 256


def refusal(http, path, **body) -> str:
    answer = http.post(path, json=body)
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "é" * (MOST // 2) + "a"}),
        ("/v1/completions", {"prompt": ["a", "a" * (MOST + 1)]}),
        ("/generate", {"text": "a" * (MOST + 1)}),
    ],
)
def test_a_text_that_cannot_fit_is_refused_by_its_bytes(http, path, body):
    told = refusal(http, path, **body)
    assert f"has {MOST + 1} bytes; the context of 256 tokens takes at most {MOST} bytes" in told


def test_the_longest_text_that_might_fit_is_still_counted_in_tokens(http):
    told = refusal(http, "/v1/completions", prompt="a" * MOST)
    assert f"the prompt has {MOST} tokens" in told


def test_a_chat_is_measured_as_the_template_writes_it(http):
    messages = [{"role": "user", "content": "a" * MOST}]
    told = refusal(http, "/v1/chat/completions", messages=messages)
    assert f"messages has {MOST + 49} bytes; the context of 256 tokens takes" in told


@pytest.mark.parametrize(
    ("path", "name"), [("/v1/completions", "prompt"), ("/generate", "input_ids")]
)
def test_a_long_list_of_ids_is_refused_by_its_length(http, path, name):
    body = {name: [97] * 5000}
    assert "the prompt has 5000 tokens; the context of 256" in refusal(http, path, **body)


def test_tokenize_takes_more_than_the_context_but_not_everything(http):
    assert http.post("/tokenize", json={"prompt": ["a" * 4000] * 2}).json()["count"] == [4000] * 2
    told = refusal(http, "/tokenize", prompt=["a" * 2**19, "a" * (2**19 + 1)])
    assert told == f"prompt has {2**20 + 1} bytes; at most {2**20} in one call"
    told = refusal(http, "/tokenize", prompt=["a"] * 2049)
    assert told == "prompt has 2049 texts; at most 2048 in one call"


def test_detokenize_is_bounded_in_lists_and_in_ids(http):
    told = refusal(http, "/detokenize", tokens=[97] * (2**18 + 1))
    assert told == f"tokens has {2**18 + 1} entries; at most {2**18} in one call"
    told = refusal(http, "/detokenize", tokens=[[97] * 2**17] * 3)
    assert f"tokens has {3 * 2**17} entries" in told
    told = refusal(http, "/detokenize", tokens=[[97]] * 2049)
    assert told == "tokens has 2049 lists of ids; at most 2048 in one call"


class NamedThreads:
    """A tokenizer that notes which threads work."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def encode(self, text: str, special: bool = True) -> list[int]:
        self.seen.add(threading.current_thread().name)
        return [1]

    def decode(self, ids: list[int], skip: bool = True) -> str:
        self.seen.add(threading.current_thread().name)
        return "a"

    def longest_text(self, tokens: int) -> int:
        return tokens * 100


def threads_of(work) -> set[str]:
    """The threads that the tokenizer ran in while `work(texts)` was awaited."""
    info = SimpleNamespace(context_length=100, cache_tokens=100, vocab_size=9)
    tokenizer = NamedThreads()
    texts = Texts(SimpleNamespace(info=info), tokenizer, SimpleNamespace(close=lambda: None))
    try:
        asyncio.run(work(texts))
    finally:
        texts.close()
    return tokenizer.seen


def test_many_small_things_count_as_one_long_one():
    here = threading.current_thread().name
    assert threads_of(lambda texts: texts.prompts(["a" * 20] * 2, "p")) == {here}
    several = [
        lambda texts: texts.prompts(["a" * 20] * 2000, "p"),
        lambda texts: texts.tokenize(["a" * 20] * 2000, "p", special=True),
        lambda texts: texts.detokenize([[1] * 20] * 2000, "p", skip_special=True),
    ]
    for work in several:
        assert here not in threads_of(work)
