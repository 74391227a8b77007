"""Names of models on a hub, and which of a repository's files are fetched."""

from __future__ import annotations

import pytest

from anychip.model.hub.choice import choose, shards, small_files
from anychip.model.hub.errors import HubError
from anychip.model.hub.name import HubName, parse_name

ID = "org/model"
GGUFS = {
    "Model-8B-Q4_K_M.gguf": 4_680_000_000,
    "Model-8B-Q4_K_S.gguf": 4_370_000_000,
    "Model-8B-Q8_0.gguf": 8_100_000_000,
    "Model-8B-BF16-00001-of-00002.gguf": 10,
    "Model-8B-BF16-00002-of-00002.gguf": 10,
    "mmproj-Model-8B-f16.gguf": 900,
    "README.md": 3,
}
FOLDER = {"config.json": 1, "model.safetensors": 2, "tokenizer.json": 3}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("org/name", ("org/name", None, None)),
        ("Qwen/Qwen3-0.6B@v1.0", ("Qwen/Qwen3-0.6B", "v1.0", None)),
        ("a/b@refs/pr/3", ("a/b", "refs/pr/3", None)),
        ("a/b-GGUF:Q4_K_M", ("a/b-GGUF", None, "Q4_K_M")),
        ("a/b@v1:sub/x.gguf", ("a/b", "v1", "sub/x.gguf")),
    ],
)
def test_a_name_is_an_id_a_revision_and_a_file(text, parts):
    name = parse_name(text)
    assert name is not None
    assert (name.id, name.revision, name.file) == parts
    assert str(name) == text


@pytest.mark.parametrize(
    "text",
    [
        *("model", "./org/name", "../org/name", "/org/name", "~/org/name", "a/b/c", "org/", "/x"),
        *("org/x.gguf", "org/x.safetensors", "org/name@", "org/name:", "org/na me", "örg/name", ""),
    ],
)
def test_paths_are_no_names(text):
    assert parse_name(text) is None


def named(file: str) -> HubName:
    return HubName(ID, None, file)


@pytest.mark.parametrize(
    ("wish", "file"),
    [
        ("Q4_K_M", "Model-8B-Q4_K_M.gguf"),
        ("q8_0", "Model-8B-Q8_0.gguf"),
        ("Model-8B-Q4_K_S.gguf", "Model-8B-Q4_K_S.gguf"),
        ("Model-8B-Q4_K_S", "Model-8B-Q4_K_S.gguf"),
    ],
)
def test_a_quantization_or_a_files_name_chooses_one(wish, file):
    assert choose(GGUFS, named(wish), "auto") == file


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        (
            "Q4_K",
            r"no \.gguf file fits ':Q4_K'; it has org/model:Q4_K_M \(4\.68 GB\), org/model:Q4",
        ),
        ("K_M", r"no \.gguf file fits"),
        ("BF16", r"one of 2 parts of a split GGUF, which is not supported; name one that is whole"),
        ("mmproj-Model-8B-f16", r"no \.gguf file fits"),
    ],
)
def test_what_names_none_is_refused_with_the_choice(wish, told):
    with pytest.raises(HubError, match=told):
        choose(GGUFS, named(wish), "auto")


def test_two_files_of_one_quantization_are_told():
    files = {"a-Q4_0.gguf": 1, "b-Q4_0.gguf": 1}
    with pytest.raises(HubError, match=r"several \.gguf files fit ':Q4_0': a-Q4_0.gguf, b-Q4_0"):
        choose(files, named("Q4_0"), "auto")
    with pytest.raises(HubError, match=r"name one of them: org/model:a-Q4_0 .*, org/model:b-Q4_0 "):
        choose(files, HubName(ID), "auto")


def test_without_a_wish_one_of_several_is_not_guessed():
    with pytest.raises(HubError, match=r"several \.gguf files; name one of them: .*:Q8_0 \(8\.10"):
        choose(GGUFS, HubName(ID), "auto")
    one = {name: size for name, size in GGUFS.items() if "Q4_K_M" in name or "mmproj" in name}
    assert choose(one, HubName(ID), "auto") == "Model-8B-Q4_K_M.gguf"


def test_safetensors_go_before_gguf_unless_gguf_is_asked_for():
    both = {**FOLDER, "m-Q4_0.gguf": 4}
    assert choose(both, HubName(ID), "auto") is None
    assert choose(both, HubName(ID), "safetensors") is None
    assert choose(both, HubName(ID), "gguf") == "m-Q4_0.gguf"
    assert choose(both, named("Q4_0"), "auto") == "m-Q4_0.gguf"


@pytest.mark.parametrize(
    ("files", "load_format", "told"),
    [
        ({"pytorch_model.bin": 1, "config.json": 1}, "auto", r"pytorch_model\.bin.*run code"),
        ({"model.safetensors": 1}, "auto", r"no config\.json"),
        ({"README.md": 1}, "auto", r"neither model\.safetensors nor"),
        ({"m.gguf": 1}, "safetensors", r"leave out --load-format safetensors"),
        ({"m-00001-of-00002.gguf": 1}, "auto", r"split"),
        (FOLDER, "gguf", r"nor a \.gguf file"),
    ],
)
def test_repositories_without_a_model_for_us(files, load_format, told):
    with pytest.raises(HubError, match=told):
        choose(files, HubName(ID), load_format)


def test_the_index_chooses_the_shards_and_one_that_is_not_there_is_named():
    index = {"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-1.safetensors"}}
    files = {"m-1.safetensors", "m-2.safetensors", "consolidated.safetensors"}
    assert shards(index, files, HubName(ID)) == ["m-1.safetensors", "m-2.safetensors"]
    with pytest.raises(HubError, match=r"names m-2\.safetensors, which is not there \(1 of 2 file"):
        shards(index, files - {"m-2.safetensors"}, HubName(ID))
    with pytest.raises(HubError, match="no 'weight_map'"):
        shards({}, files, HubName(ID))


def test_small_files_are_those_that_we_read():
    files = [
        *FOLDER,
        "chat_template.jinja",
        "onnx/config.json",
        "modeling_x.py",
        "x.bin",
        "merges.txt",
    ]
    assert small_files(files) == ["chat_template.jinja", "config.json", "tokenizer.json"]
