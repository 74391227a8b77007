"""The rules that a linter has no word for."""

from __future__ import annotations

import ast
import pathlib
import re
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]
ROOT = REPOSITORY / "src" / "anychip"
FILES = sorted(ROOT.rglob("*.py"))
TESTS = sorted((REPOSITORY / "tests").rglob("*.py"))
CORE = [f for f in FILES if "chips" not in f.relative_to(ROOT).parts]
CHIPS = sorted(d.name for d in (ROOT / "chips").iterdir() if d.is_dir() and d.name[0] not in "_.")
CHIP_FILES = {"__init__.py", "registration.py", "operators.py", "memory.py", "build.py"}
SLOT_FILES = {"telemetry.py", "communicator.py", "capture.py"}
# The backend that is used where none is named, and the words of English that a chip is called by.
DEFAULT_BACKEND, WORDS = "cpu", {"fake", "torch"}
# Where the default is declared, and where a word of another server's protocol is spelled the same.
SAY_IT = {("settings", "chip.py"), ("server", "profile.py")}
STANDARD = "process_cpu_seconds"
"""What Prometheus calls a process's processor time, whatever the chip."""
VAGUE = {"util", "utils", "helper", "helpers", "common", "manager", "handler", "misc"}
MAX_FILE, MAX_FUNCTION = 400, 50


def tree(file: pathlib.Path) -> ast.Module:
    return ast.parse(file.read_text())


def names(paths) -> list[str]:
    return [str(path.relative_to(REPOSITORY)) for path in paths]


@pytest.mark.parametrize("chip", CHIPS)
def test_every_chip_has_the_same_four_files_and_one_for_an_optional_slot(chip):
    """A layer that outgrows its file goes on in others that begin with its name."""
    folder = ROOT / "chips" / chip
    found = {f.name for f in folder.glob("*.py")} - SLOT_FILES
    more = {name for name in found if f"{name.partition('_')[0]}.py" in CHIP_FILES - {name}}
    assert found - more == CHIP_FILES
    folders = {f.name for f in folder.iterdir() if f.is_dir()} - {"__pycache__"}
    assert folders <= {"kernels"}


def chip_words(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        found = set(re.findall(r"[A-Za-z0-9]+", node.value.lower().replace(STANDARD, "")))
    elif isinstance(node, ast.Name):
        found = set(node.id.lower().split("_"))
    elif isinstance(node, ast.Attribute):
        found = set(node.attr.lower().split("_"))
    else:
        found = set()
    return found & set(CHIPS)


def docstrings(module: ast.Module) -> set[int]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Expr)
    return {
        id(expression.value)
        for node in ast.walk(module)
        if isinstance(node, kinds)
        for expression in getattr(node, "body", [])
        if isinstance(expression, ast.Expr)
    }


@pytest.mark.parametrize("file", CORE, ids=names(CORE))
def test_core_names_no_chip(file):
    module = tree(file)
    texts = docstrings(module)
    allowed = {DEFAULT_BACKEND} if file.parts[-2:] in SAY_IT else set()
    for node in ast.walk(module):
        if id(node) not in texts:
            assert not chip_words(node) - allowed - WORDS, f"{file}:{node.lineno} names a chip"


def imported_names(module: ast.Module) -> set[str]:
    return {
        alias.asname or alias.name.split(".")[0]
        for node in ast.walk(module)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }


def written_bases(module: ast.Module):
    """Names whose attributes or items are assigned to, with the line."""
    for node in ast.walk(module):
        targets = list(getattr(node, "targets", []))
        if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets.append(node.target)
        for target in targets:
            base = target
            while isinstance(base, (ast.Attribute, ast.Subscript)):
                base = base.value
            if base is not target and isinstance(base, ast.Name):
                yield base.id, node.lineno


@pytest.mark.parametrize("file", FILES, ids=names(FILES))
def test_nothing_patches_what_it_imported(file):
    module = tree(file)
    imported = imported_names(module)
    for base, line in written_bases(module):
        assert base not in imported, f"{file}:{line} writes into {base}"
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            first = node.args[0] if node.args else None
            patched = node.func.id == "setattr" and isinstance(first, ast.Name)
            assert not (patched and first.id in imported), (
                f"{file}:{node.lineno} patches {first.id}"
            )


@pytest.mark.parametrize("file", FILES + TESTS, ids=names(FILES + TESTS))
def test_files_and_functions_stay_small(file):
    assert file.read_text().count("\n") <= MAX_FILE
    for node in ast.walk(tree(file)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno - node.lineno < MAX_FUNCTION, node.name


def test_no_vague_names():
    for path in [*FILES, *TESTS]:
        parts = set(path.relative_to(REPOSITORY).with_suffix("").parts)
        words = {word for part in parts for word in part.lower().split("_")}
        assert not words & VAGUE, path
    for file in FILES:
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.ClassDef):
                words = {word.lower() for word in re.findall(r"[A-Z][a-z]+", node.name)}
                assert not words & VAGUE, f"{file}: class {node.name}"


def is_broad(handler: ast.ExceptHandler) -> bool:
    caught = handler.type
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    broad = {"Exception", "BaseException"}
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in broad) for kind in kinds)


@pytest.mark.parametrize("file", FILES, ids=names(FILES))
def test_no_exception_is_swallowed(file):
    """A broad handler raises, uses what it caught, or hands it to logging's `handleError`."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.ExceptHandler) and is_broad(node):
            body = [inner for statement in node.body for inner in ast.walk(statement)]
            raises = any(isinstance(inner, ast.Raise) for inner in body)
            used = any(isinstance(inner, ast.Name) and inner.id == node.name for inner in body)
            told = any(
                isinstance(inner, ast.Attribute) and inner.attr == "handleError" for inner in body
            )
            assert raises or told or (node.name and used), f"{file}:{node.lineno}"


@pytest.mark.parametrize("file", FILES, ids=names(FILES))
def test_no_mutable_or_rebound_global(file):
    for node in ast.walk(tree(file)):
        assert not isinstance(node, ast.Global), f"{file}:{node.lineno} rebinds a global"


@pytest.mark.parametrize("file", TESTS, ids=names(TESTS))
def test_tests_assert_no_duration(file):
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Assert):
            called = {
                inner.func.attr
                for inner in ast.walk(node.test)
                if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute)
            }
            assert not called & {"perf_counter", "monotonic", "process_time"}, (
                f"{file}:{node.lineno}"
            )


SETTINGS = [
    "anychip",
    "anychip.config",
    "anychip.__main__",
    "anychip.cli.serve",
    "anychip.server.run",
]


@pytest.mark.parametrize("module", SETTINGS)
def test_importing_loads_no_framework(module):
    heavy = ("torch", "jax", "triton", "transformers")
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.stdout.strip() == "[]", ended.stdout + ended.stderr


@pytest.mark.parametrize("module", ["anychip", "anychip.config", "anychip.__main__"])
def test_parsing_loads_neither_numpy_nor_the_server(module):
    heavy = ("numpy", "starlette", "tokenizers", "yaml", "rich")
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.stdout.strip() == "[]", ended.stdout + ended.stderr


NOT_NEEDED = {
    # The engine's process is started first, so what the server needs besides waits for it.
    "anychip.server.run": ("numpy", "starlette", "tokenizers", "uvicorn", "jinja2"),
    "anychip.server.answering": ("numpy", "jinja2", "anychip.run", "anychip.contract.registration"),
    "anychip.engine.process": ("asyncio", "numpy"),
    "anychip.engine.build": ("asyncio", "tokenizers", "jinja2", "starlette", "anychip.run.check"),
}


@pytest.mark.parametrize("module", NOT_NEEDED)
def test_a_process_imports_what_it_needs(module):
    code = f"import sys, {module}; print([m for m in {NOT_NEEDED[module]} if m in sys.modules])"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.stdout.strip() == "[]", ended.stdout + ended.stderr
