from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

import pytest
from text_samples import TEXTS, train_byte_level
from tokenizers import normalizers

from anychip.text.errors import TextError
from anychip.text.load import open_tokenizer


def test_lone_surrogate_is_named_with_its_position(demo):
    with pytest.raises(TextError, match=r"U\+D83D at character 3"):
        demo.encode("abc\ud83d!")
    assert demo.encode("abc\U0001f600!")


def test_text_must_be_text(demo):
    with pytest.raises(TextError, match="not int"):
        demo.encode(7)


def test_special_tokens_are_skipped_or_shown(demo):
    ids = demo.encode("<|im_start|>user\nhi<|im_end|>")
    assert demo.decode(ids) == "user\nhi"
    assert demo.decode(ids, skip_special_tokens=False) == "<|im_start|>user\nhi<|im_end|>"


def test_threads_agree(demo):
    text = "\n".join(TEXTS) * 20
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(demo.encode, [text] * 12))
    assert all(ids == results[0] for ids in results)


class Beats(Thread):
    """Counts about a thousand a second while it gets the interpreter."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.count, self.enough = 0, Event()

    def run(self) -> None:
        while not self.enough.is_set():
            time.sleep(0.001)
            self.count += 1


def test_other_threads_run_while_a_long_text_is_encoded(demo):
    beats = Beats()
    beats.start()
    before = beats.count
    ids = demo.encode("some text. " * (2**20 // 11))
    during = beats.count - before
    beats.enough.set()
    beats.join()
    assert len(ids) > 2**17
    assert during > 20  # it was 0 to 3 while the library kept the interpreter to itself


@pytest.mark.parametrize("text", [text for text in TEXTS if text])
def test_no_text_is_longer_than_its_tokens_allow(demo, text):
    assert len(text.encode()) <= demo.longest_text(len(demo.encode(text)))


def test_a_normalizer_may_shrink_a_text_before_it_is_split(tmp_path):
    core = train_byte_level()
    plain = open_from(tmp_path / "plain", core).longest_text(1)
    core.normalizer = normalizers.NFKC()
    shrinking = open_from(tmp_path / "shrinking", core)
    assert shrinking.longest_text(1) == 4 * plain
    letters = "\N{MATHEMATICAL BOLD SMALL T}\N{MATHEMATICAL BOLD SMALL H}" * 300  # 4 bytes each
    assert len(letters.encode()) <= shrinking.longest_text(len(shrinking.encode(letters)))


def open_from(folder, core):
    folder.mkdir()
    core.save(str(folder / "tokenizer.json"))
    return open_tokenizer(folder)
