"""Clients of a server that do what clients do: ask, stream, leave, read slowly, and ask wrongly."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from random import Random

import httpx

TEXT = "the quick brown fox jumps over a lazy dog and she sells sea shells"
WORDS = TEXT.split()
WRONG = (
    b"{",
    b"[]",
    b'{"prompt": "a", "max_tokens": -1}',
    b'{"prompt": "a", "temperature": "hot"}',
    b'{"prompt": ""}',
    b'{"prompt": [999999]}',
    b'{"prompt": "a", "model": "another"}',
)


class Client(threading.Thread):
    """One client in a thread. error: what it saw that is not right."""

    def __init__(self, url: str, seed: int, over: threading.Event, answers: dict) -> None:
        super().__init__(daemon=True)
        self.rng, self.over, self.answers = Random(seed), over, answers
        self.http = httpx.Client(base_url=url, timeout=60)
        self.seen: Counter[str] = Counter()
        self.error: Exception | None = None

    def run(self) -> None:
        acts = (self.chat, self.complete, self.stream, self.leave, self.dawdle, self.blunder)
        try:
            with self.http:
                while not self.over.is_set():
                    act = self.rng.choice(acts)
                    act()
                    self.seen[act.__name__] += 1
        except Exception as error:  # noqa: BLE001 (raised again in the test's thread)
            self.error = error
            self.over.set()

    def words(self, most: int) -> str:
        return " ".join(self.rng.choices(WORDS, k=self.rng.randint(1, most)))

    def chat(self) -> None:
        turns = [{"role": "user", "content": self.words(12)} for _ in range(self.rng.randint(1, 3))]
        body = {"messages": turns, "max_tokens": self.rng.randint(1, 24), "n": 2}
        answer = self.http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["choices"]) == 2

    def complete(self) -> None:
        """Greedy, of few prompts: whoever asks, and beside whom, the answer stays what it was."""
        prompt = " ".join(WORDS[: self.rng.randint(1, len(WORDS))])
        body = {"prompt": prompt, "max_tokens": 16, "temperature": 0}
        answer = self.http.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        text = answer.json()["choices"][0]["text"]
        assert self.answers.setdefault(prompt, text) == text, prompt

    def stream(self) -> None:
        lines = self._lines(pause_s=0.0, most=10**9)
        assert lines[-1] == "data: [DONE]"
        pieces = [json.loads(line[6:])["choices"][0] for line in lines[:-1]]
        assert pieces[-1]["finish_reason"] in ("stop", "length")

    def leave(self) -> None:
        self._lines(pause_s=0.0, most=self.rng.randint(0, 6))

    def dawdle(self) -> None:
        self._lines(pause_s=0.05, most=40)

    def blunder(self) -> None:
        answer = self.http.post("/v1/completions", content=self.rng.choice(WRONG))
        assert 400 <= answer.status_code < 500, (answer.status_code, answer.text)
        assert answer.json()["error"]["message"]

    def _lines(self, pause_s: float, most: int) -> list[str]:
        body = {"prompt": self.words(40), "max_tokens": self.rng.randint(8, 64), "stream": True}
        found: list[str] = []
        with self.http.stream("POST", "/v1/completions", json=body) as answer:
            assert answer.status_code == 200
            rest = b""
            for piece in answer.iter_bytes():
                *lines, rest = (rest + piece).split(b"\n")  # `iter_lines` splits at U+2028 too
                found += [line.decode() for line in lines if line]
                if len(found) >= most:
                    break
                time.sleep(pause_s)
        return found
