from __future__ import annotations

import pytest
from grammar_vocabulary import small_vocabulary

from anychip.grammar.compiler import GrammarCompiler


@pytest.fixture(scope="session")
def vocabulary():
    return small_vocabulary()


@pytest.fixture(scope="session")
def compiler(vocabulary):
    return GrammarCompiler(vocabulary)
