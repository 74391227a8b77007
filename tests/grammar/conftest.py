from __future__ import annotations

import pytest
from grammar_vocabulary import small_vocabulary

from anychip.grammar.backend import backend_complaint
from anychip.grammar.compiler import GrammarCompiler

NO_XGRAMMAR = backend_complaint("xgrammar")


@pytest.fixture(scope="session")
def vocabulary():
    return small_vocabulary()


@pytest.fixture(
    scope="session",
    params=[
        "llguidance",
        pytest.param(
            "xgrammar", marks=pytest.mark.skipif(bool(NO_XGRAMMAR), reason=NO_XGRAMMAR or "")
        ),
    ],
)
def backend(request):
    """Each backend that can be served here."""
    return request.param


@pytest.fixture(scope="session")
def compiler(vocabulary, backend):
    return GrammarCompiler(vocabulary, backend=backend)


@pytest.fixture(scope="session")
def llguidance(vocabulary):
    """The default backend alone."""
    return GrammarCompiler(vocabulary)
