"""weight_as: products that read their weights as what they are not."""

from pathlib import Path

import pytest
from sim_llm_card import BOUND, DTYPES, error, exact, made, started_card, values
from sim_trees import shared_tree, with_accounts
from test_sim_llm_products import API, PLAIN, STRUCTS, product


@pytest.mark.parametrize(
    ("kind", "said"), [("bfloat16", "float16"), ("float16", "bfloat16"), ("float", "max")]
)
def test_both_libraries_misread_weights(kind: str, said: str, tmp_path: Path):
    x, w = values(kind, 5, 32, seed=1), values(kind, 7, 32, seed=2)
    right = exact(x) @ exact(w).T
    wrong = exact(x) @ (exact(w) * 127 if said == "max" else exact(w.view(DTYPES[said]))).T
    with started_card(tmp_path, XPUSIM_FAULTS=f"weight_as={said}") as card:
        for form in (API, PLAIN, STRUCTS):
            found = product(card, x, w, made(kind, 5, 7), kind, form=form).at(2)
            assert error(found, wrong) < BOUND[kind]
            assert error(found, right) > 0.5


def test_other_types_are_read_as_they_are(tmp_path: Path):
    x, w = values("float", 5, 32, seed=1), values("float", 7, 32, seed=2)
    with started_card(tmp_path, XPUSIM_FAULTS="weight_as=float16") as card:
        found = product(card, x, w, made("float", 5, 7)).at(2)
    assert error(found, exact(x) @ exact(w).T) < BOUND["float"]


def test_a_type_that_is_none_ends_the_process(tmp_path: Path):
    tree = with_accounts(shared_tree(), tmp_path)
    code = "import ctypes; ctypes.CDLL('libxpurt.so').xpu_set_device(0)"
    with tree.start(code, XPUSIM_FAULTS="weight_as=int4") as child:
        assert child.wait(timeout=60) < 0
