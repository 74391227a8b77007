from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from text_samples import TEXTS

from anychip.text.errors import TextError


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
