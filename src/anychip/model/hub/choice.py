"""Which files of a repository are fetched: those that we read, and the weights once."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from anychip.model.folder import INDEX, PICKLES, SINGLE
from anychip.model.hub.errors import HubError
from anychip.model.hub.name import HubName

_SMALL = (".json", ".jinja")
_SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)
_NO_MODEL = re.compile(r"(^|[-._])(mmproj|imatrix)", re.IGNORECASE)
_QUANTIZATION = re.compile(r"i?q\d|tq\d|b?f\d|mxfp\d|ud-")
_SHOWN = 12


def small_files(files: Collection[str]) -> list[str]:
    """config, tokenizer, template and index: all but the weights."""
    return sorted(name for name in files if "/" not in name and name.endswith(_SMALL))


def choose(files: Mapping[str, int], name: HubName, load_format: str) -> str | None:
    """The .gguf file to take; None: the safetensors that lie beside config.json.

    files: name -> bytes. Raises HubError with the choice that there is.
    """
    ggufs = [f for f in sorted(files) if f.lower().endswith(".gguf") and not _is_no_model(f)]
    if name.file is not None:
        return _named(ggufs, files, name)
    if load_format != "gguf" and (SINGLE in files or INDEX in files):
        if "config.json" not in files:
            raise HubError(f"{name}: it has safetensors, but no config.json; name another model")
        return None
    whole = [f for f in ggufs if not _SPLIT.search(f)]
    if load_format == "safetensors" or not ggufs:
        raise HubError(f"{name}: {_nothing(files, ggufs)}")
    if len(whole) != 1 or len(ggufs) != 1:
        raise HubError(f"{name}: {_several(ggufs, files, name)}")
    return whole[0]


def shards(index: Mapping[str, object], files: Collection[str], name: HubName) -> list[str]:
    """The weight files that an index names. Raises HubError for one that the hub lacks."""
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise HubError(f"{name}: {INDEX} has no 'weight_map' object; name another revision")
    named = sorted({str(file) for file in weight_map.values()})
    missing = [file for file in named if file not in files]
    if missing:
        raise HubError(
            f"{name}: {INDEX} names {missing[0]}, which is not there ({len(missing)} of "
            f"{len(named)} files); name another revision, or tell the model's authors"
        )
    return named


def _is_no_model(file: str) -> bool:
    """Projectors of images and statistics of a quantization are GGUF files too."""
    return bool(_NO_MODEL.search(file.rpartition("/")[2]))


def _named(ggufs: list[str], files: Mapping[str, int], name: HubName) -> str:
    wish = str(name.file)
    exact = [file for file in ggufs if wish in (file, file.rpartition("/")[2])]
    found = exact or [file for file in ggufs if quantization_fits(file, wish)]
    whole = [file for file in found if not _SPLIT.search(file)]
    if len(whole) == 1:
        return whole[0]
    if not found:
        has = f"it has {_list(ggufs, files, name)}" if ggufs else _nothing(files, ggufs)
        raise HubError(f"{name}: no .gguf file fits ':{wish}'; {has}")
    if not whole:
        raise HubError(
            f"{name}: {found[0]} is one of {len(found)} parts of a split GGUF, which is not "
            f"supported; name one that is whole: {_list(ggufs, files, name)}"
        )
    raise HubError(f"{name}: several .gguf files fit ':{wish}': {', '.join(whole[:_SHOWN])}")


def quantization_fits(file: str, wish: str) -> bool:
    """Whether a file's name ends with the quantization, parts left aside: `x-Q4_K_M.gguf`."""
    stem = _SPLIT.sub(".gguf", file).rpartition("/")[2][: -len(".gguf")].lower()
    wish = wish.lower()
    before = "-._" if _QUANTIZATION.match(wish) else "-."  # "K_M" is no quantization
    return stem == wish or (stem.endswith(wish) and stem[: -len(wish)][-1] in before)


def _several(ggufs: list[str], files: Mapping[str, int], name: HubName) -> str:
    if all(_SPLIT.search(file) for file in ggufs):
        return "its .gguf files are parts of split ones, which are not supported; merge them first"
    return f"it has several .gguf files; name one of them: {_list(ggufs, files, name)}"


def _list(ggufs: list[str], files: Mapping[str, int], name: HubName) -> str:
    """What can be asked for, with sizes; split ones cannot."""
    whole = [file for file in ggufs if not _SPLIT.search(file)]
    shown = [f"{name.id}:{_tag(file, whole)} ({files[file] / 1e9:.2f} GB)" for file in whole]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return (", ".join(shown[:_SHOWN]) or "none that is whole") + more


def _tag(file: str, ggufs: list[str]) -> str:
    """The shortest tail of a file's name that names it alone."""
    stem = file.rpartition("/")[2][: -len(".gguf")]
    for start in reversed([0, *(m.end() for m in re.finditer(r"[-.]", stem))]):
        tail = stem[start:]
        if tail and sum(quantization_fits(other, tail) for other in ggufs) == 1:
            return tail
    return file


def _nothing(files: Mapping[str, int], ggufs: list[str]) -> str:
    pickles = sorted(file for file in files if file.endswith(PICKLES))
    if ggufs:
        return "it has no safetensors, but .gguf files; leave out --load-format safetensors"
    if pickles and not any(file.endswith(".safetensors") for file in files):
        return (
            f"its weights are pickle files ({pickles[0]}), which can run code when they are read "
            "and are refused; name a revision or a model with safetensors"
        )
    return f"it has neither {SINGLE} nor {INDEX} nor a .gguf file that is a model"
