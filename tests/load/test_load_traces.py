"""Traces of each format, read as one form, and the calls that are made of them."""

from __future__ import annotations

import gzip
import json
import os
import threading

import pytest

from anychip.bench.load.calls import LoadError
from anychip.bench.load.mooncake import BLOCK
from anychip.bench.load.prompts import Shape, best_hit_rate, calls_of
from anychip.bench.load.scaling import Scaling
from anychip.bench.load.trace_file import TraceError
from anychip.bench.load.traces import read_trace
from anychip.record.lines import FORMAT, VERSION, Header, Recorded
from anychip.record.writer import RecordWriter

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,40,10
2023-11-16 18:17:04.0319600,7,8
2024-05-10 00:00:00.009930+00:00,3,1
"""
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45.5,ChatGPT,1087,230,1317,Conversation log
50,GPT-4,20,0,20,API log
"""


def mooncake(*calls) -> str:
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    return "".join(json.dumps(dict(zip(names, call, strict=True))) + "\n" for call in calls)


SHARED = mooncake(
    (1000, 2 * BLOCK + 100, 50, [7, 8, 9]),
    (3500, 2 * BLOCK + 30, 500, [7, 8, 11]),
    (3000, BLOCK, 5, [12]),
)


def trace_of(tmp_path, text: str, limit: int | None = None):
    path = tmp_path / "trace"
    path.write_text(text)
    return read_trace(path, limit)


def recorded(tmp_path, *lines: Recorded, **header):
    head = Header(format=FORMAT, version=VERSION, started=100.0, model="m", **header)
    writer = RecordWriter(tmp_path / "record", head, max_bytes=2**20, keep=0)
    for line in lines:
        writer.put(lambda line=line: line)
    writer.close()
    return read_trace(tmp_path / "record")


def test_azure(tmp_path):
    trace = trace_of(tmp_path, AZURE, 2)
    assert trace.kind == "azure" and not trace.notes
    assert [r.at_s for r in trace.requests] == pytest.approx([0.0, 0.052])
    assert [(r.input_tokens, r.output_tokens) for r in trace.requests] == [(40, 10), (7, 8)]
    assert trace_of(tmp_path, AZURE).seconds > 86400


def test_burstgpt_leaves_out_what_was_never_answered(tmp_path):
    trace = trace_of(tmp_path, BURST)
    assert trace.kind == "burstgpt" and [r.at_s for r in trace.requests] == [0.0, 40.5]
    assert trace.requests[1].output_tokens == 230
    assert trace.notes == ("1 requests without a prompt or an answer are left out",)


def test_mooncake_in_the_order_of_arrival(tmp_path):
    trace = trace_of(tmp_path, SHARED)
    assert (trace.kind, trace.block) == ("mooncake", 512)
    assert [r.at_s for r in trace.requests] == [0.0, 2.0, 2.5]
    assert trace.requests[2].blocks == (7, 8, 11)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty: nothing was recorded"),
        ("a,b\n1,2\n", "not a trace that is known"),
        ('{"prompt": 1}\n', "not a trace that is known"),
        (AZURE.splitlines()[0] + "\n", "no request in it: it has a header and nothing else"),
        (
            AZURE.splitlines()[0] + "\n2023-11-16 18:17:03,0,1\n",
            r"no request in it \(1 req",
        ),
        (AZURE + "yesterday,1,1\n", "line 5: .*is no time such as"),
        (BURST + "60,x,many,1,1,API log\n", "line 5: .*invalid literal"),
        (BURST + "60,x\n", "line 5"),
        (mooncake((0, BLOCK + 1, 1, [1])), "blocks of 512 tokens are needed"),
        (SHARED + "{}\n", "line 4: not a trace of blocks"),
        (BURST + "6" * 200_000 + ",x,1,1,1,API log\n", "field larger than field limit"),
    ],
)
def test_what_is_no_trace_is_told_with_its_line(tmp_path, text, told):
    with pytest.raises(TraceError, match=told):
        trace_of(tmp_path, text)


@pytest.mark.parametrize("when", ["nan", "inf", "-inf"])
def test_a_time_that_is_none_is_told_with_its_line(tmp_path, when):
    with pytest.raises(TraceError, match=f"line 3: .*'{when}' is no time in seconds"):
        trace_of(tmp_path, BURST.replace("45.5", when))


def test_lengths_that_no_array_holds_are_refused(tmp_path):
    with pytest.raises(
        TraceError, match=r"request 2 .* has 99999999999999999999 tokens; .*2147483647"
    ):
        trace_of(tmp_path, AZURE.replace(",7,8", ",99999999999999999999,8"))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(TraceError, match="No such file"):
        read_trace(tmp_path / "none")


@pytest.mark.parametrize("text", [AZURE, BURST, SHARED, "record"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_mark_and_the_ends_of_lines_of_other_systems_are_read(tmp_path, text, mark):
    if text == "record":
        recorded(tmp_path, Recorded(id=0, at=100.0, at_s=0.0, prompt_tokens=2, response_tokens=1))
        text = (tmp_path / "record").read_text()
    (tmp_path / "plain").write_text(text)
    (tmp_path / "foreign").write_bytes(mark + text.replace("\n", "\r\n").encode())
    assert read_trace(tmp_path / "foreign") == read_trace(tmp_path / "plain")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            gzip.compress(AZURE.encode()),
            r"is packed \(gzip\): unpack it first, gunzip --keep ",
        ),
        (AZURE.encode("utf-16"), "is UTF-16: save it as UTF-8, iconv -f UTF-16"),
        (AZURE.encode() + b"\xff\n", "it is not UTF-8"),
        (b'{"format":"anychip-record","vers', "its only line is torn"),
        (b'{"format":"anychip-record","version":1,"started":1.0}\n', "a header and nothing else"),
    ],
)
def test_a_file_in_another_form_is_refused_with_the_way_out(tmp_path, data, told):
    (tmp_path / "trace").write_bytes(data)
    with pytest.raises(TraceError, match=told) as refused:
        read_trace(tmp_path / "trace")
    assert "\n" not in str(refused.value)


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(TraceError, match="is a folder: name the file in it"):
        read_trace(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceError, match="is no plain file"):
        read_trace(tmp_path / "pipe")


def test_equal_blocks_are_equal_tokens_and_others_share_none(tmp_path):
    trace = trace_of(tmp_path, SHARED)
    one, alone, two = (c.prompt for c in calls_of(trace, Shape(vocab=5000)).calls)
    assert [len(p) for p in (one, alone, two)] == [2 * BLOCK + 100, BLOCK, 2 * BLOCK + 30]
    assert one[: 2 * BLOCK] == two[: 2 * BLOCK]
    assert one[2 * BLOCK :][:30] != two[2 * BLOCK :] and alone[:64] != one[:64]
    assert calls_of(trace, Shape(vocab=5000)).calls[0].prompt == one  # the same every time


@pytest.mark.parametrize("factor", [0.03, 0.25, 2.0])
def test_scaling_keeps_what_prompts_share(tmp_path, factor):
    trace = trace_of(tmp_path, SHARED)
    scaling = Scaling(input=factor, output=0.1)
    asked = calls_of(trace, Shape(vocab=5000, scaling=scaling))
    one, _, two = (call.prompt for call in asked.calls)
    block = round(BLOCK * factor)
    assert one[: 2 * block] == two[: 2 * block] and one[2 * block] != two[2 * block]
    assert len(one) == 2 * block + max(1, round(100 * factor))
    assert [call.max_tokens for call in asked.calls] == [5, 1, 50]
    assert asked.notes[0] == f"scaling: input lengths times {factor:g}, output lengths times 0.1"
    rate = best_hit_rate(asked.calls, 1)
    total = sum(len(call.prompt) for call in asked.calls)
    assert rate == pytest.approx(2 * block / total)


def test_limits_cut_prompts_at_their_end(tmp_path):
    trace = trace_of(tmp_path, SHARED)
    scaling = Scaling(max_input=600, max_output=20)
    asked = calls_of(trace, Shape(vocab=5000, scaling=scaling))
    whole = calls_of(trace, Shape(vocab=5000)).calls
    assert [len(call.prompt) for call in asked.calls] == [600, 512, 600]
    assert asked.calls[0].prompt == whole[0].prompt[:600]
    assert [call.max_tokens for call in asked.calls] == [20, 5, 20]


def test_made_up_prompts_have_no_end_tokens_and_may_be_words(tmp_path):
    trace = trace_of(tmp_path, BURST)
    reserved = frozenset(range(0, 50, 2))
    asked = calls_of(trace, Shape(vocab=50, reserved=reserved))
    assert not reserved & {token for call in asked.calls for token in call.prompt}
    assert asked.calls[0].prompt[:50] != asked.calls[1].prompt[:50]
    assert asked.calls[0].params == {"temperature": 0, "ignore_eos": True}
    words = calls_of(trace, Shape()).calls[0].prompt
    assert len(words.split()) == 472
    assert calls_of(trace, Shape(free_length=True)).calls[0].params == {"temperature": 0}


FULL = Recorded(
    id=1,
    at=101.0,
    at_s=1.0,
    prompt_tokens=3,
    prompt=[4, 5, 6],
    params={"temperature": 0.5, "seed": 3, "stop": ["x"], "min_tokens": 2},
    grammar={"kind": "regex", "text": "a+"},
    max_tokens=50,
    response_tokens=2,
    response=[7, 8],
    space="ab",
)


def test_a_record_is_asked_again_as_it_was(tmp_path):
    plain = Recorded(id=2, at=102.0, at_s=2.0, prompt_tokens=1, prompt=[9], response_tokens=0)
    trace = recorded(tmp_path, FULL, plain)
    one, two = calls_of(trace, Shape(vocab=100)).calls
    assert (one.at_s, two.at_s) == (0.0, 1.0)
    assert (one.prompt, one.max_tokens) == ((4, 5, 6), 2)
    # An answer that is held to a grammar ends where the grammar says.
    assert one.params == {"temperature": 0.5, "seed": 3, "regex": "a+", "cache_salt": "ab"}
    assert (two.max_tokens, two.params) == (1, {"ignore_eos": True})
    free = calls_of(trace, Shape(vocab=100, free_length=True)).calls[0]
    assert free.max_tokens == 50 and free.params["stop"] == ["x"]


def test_an_exact_replay_names_the_recorded_tokens(tmp_path):
    trace = recorded(tmp_path, FULL)
    (call,) = calls_of(trace, Shape(vocab=100, exact=True)).calls
    assert call.params["emit_token_ids"] == (7, 8) and call.max_tokens == 2
    assert not set(call.params) & {"regex", "stop", "min_tokens", "ignore_eos"}
    with pytest.raises(LoadError, match="leave out scaling"):
        calls_of(trace, Shape(vocab=100, exact=True, scaling=Scaling(output=0.5)))
    with pytest.raises(LoadError, match="the trace has no recorded tokens"):
        calls_of(trace_of(tmp_path, AZURE, 1), Shape(vocab=100, exact=True))


def test_an_exact_replay_leaves_out_what_got_no_answer(tmp_path):
    failed = Recorded(id=2, at=102.0, at_s=2.0, prompt_tokens=1, prompt=[9], error="queue_full")
    asked = calls_of(recorded(tmp_path, FULL, failed), Shape(vocab=100, exact=True))
    assert [call.prompt for call in asked.calls] == [(4, 5, 6)]
    assert asked.notes[-1] == "left out, since they got no tokens: 1"


def test_a_record_of_lengths_shares_what_its_hashes_say(tmp_path):
    def line(number: int, tokens: int, *blocks: str) -> Recorded:
        return Recorded(
            id=number, at=100.0, at_s=0.0, prompt_tokens=tokens, blocks=list(blocks),
            response_tokens=4, grammar={"kind": "lark"},
        )  # fmt: skip

    trace = recorded(tmp_path, line(1, 130, "a", "b", "c"), line(2, 100, "a", "d"))
    asked = calls_of(trace, Shape(vocab=1000))
    one, two = (call.prompt for call in asked.calls)
    assert (len(one), len(two)) == (130, 100) and one[:64] == two[:64] and one[64:99] != two[64:99]
    assert "2 requests were held to a grammar that cannot be asked for" in asked.notes
    assert any("lengths alone" in note for note in trace.notes)


def test_a_record_of_texts_is_sent_as_texts_and_cannot_be_scaled(tmp_path):
    messages = [{"role": "user", "content": "hello"}]
    trace = recorded(
        tmp_path,
        Recorded(id=1, at=100.0, at_s=0.0, messages=messages, response_tokens=3),
        Recorded(id=2, at=101.0, at_s=1.0, text="once", response_tokens=3),
    )
    chat, text = calls_of(trace, Shape(vocab=100)).calls
    assert chat.path == "/chat/completions" and chat.messages == tuple(messages)
    assert text.prompt == "once"
    with pytest.raises(LoadError, match="prompts cannot be scaled"):
        calls_of(trace, Shape(vocab=100, scaling=Scaling(input=0.5)))


def test_ids_are_not_sent_as_text_where_no_text_was_kept(tmp_path):
    with pytest.raises(LoadError, match="the record holds ids alone"):
        calls_of(recorded(tmp_path, FULL), Shape(text=True))


@pytest.mark.parametrize("name", ["input", "output"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), 1e9])
def test_a_factor_that_cannot_be_is_refused(name, value):
    with pytest.raises(LoadError, match=f"--scale-{name}: .* must be above 0"):
        Scaling(**{name: value})


LONG = {"prompt": [1] * 600, "prompt_tokens": 600, "response_tokens": 1}


def test_a_record_that_is_rotated_meanwhile_is_read(tmp_path):
    """A writer that rotates with nearly every line; a reader that is there all the time."""
    path, over, failures, reads = tmp_path / "r", threading.Event(), [], 0
    head = Header(format=FORMAT, version=VERSION, started=100.0, model="m")
    writer = RecordWriter(path, head, max_bytes=4096, keep=2)

    def write() -> None:
        for number in range(4000):
            writer.put(lambda n=number: Recorded(id=n, at=100.0 + n, at_s=float(n), **LONG))
        over.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not over.is_set() or reads < 5:
        try:
            reads += bool(read_trace(path).requests)
        except TraceError as error:
            if "no request in it" in str(error):  # it was just rotated
                reads += 1
                continue
            failures.append(str(error))
            break
    thread.join()
    writer.close()
    assert failures == [] and reads >= 5


def test_a_record_that_was_just_rotated_says_where_the_rest_is(tmp_path):
    recorded(tmp_path, Recorded(id=0, at=100.0, at_s=0.0, prompt_tokens=2, response_tokens=1))
    (tmp_path / "record").rename(tmp_path / "record.1")
    with pytest.raises(
        TraceError, match=r"no request in it: .*; .*record\.1 is the part before it"
    ):
        recorded(tmp_path)
