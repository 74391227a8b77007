"""Which operator it was: a case that is worse, run once more against the oracle."""

from __future__ import annotations

from dataclasses import dataclass

from anychip.bench.regress_cases import Case, Place
from anychip.bench.regress_measure import prompts_of, run_case, session_of
from anychip.contract.errors import ChipError
from anychip.engine.checking import step_checker
from anychip.engine.loaded import LoadedModel
from anychip.run.divergences import DivergenceLog

MOST_NAMED = 5
"""Cases of one model that are run again: checked steps are slow, and where all is worse it is one
operator's fault."""


@dataclass(frozen=True)
class Named:
    """What diverges in a case, or what to look at instead. saved: the file of the call and the
    command that runs it again, or why there is none; empty where no operator diverges."""

    what: str
    saved: str = ""

    def __str__(self) -> str:
        return f"{self.what}. {self.saved}" if self.saved else self.what


def first_divergence(model: LoadedModel, case: Case, place: Place) -> Named:
    """Run the case with every operator against the oracle; the first that diverges, or what to
    look at instead."""
    config, opened = model.config, model.opened
    judge = step_checker(opened, config.check_ops_path)
    options = config.chip_option
    kept = DivergenceLog(config.check_ops_path, opened.chip, config.device_index, options)
    judge.keep = kept.keep  # the report tells of it, not the log
    prompts = prompts_of(model, case, place)
    with session_of(model, case, place) as session:
        session.runner.checker = judge
        try:
            run_case(session, case, prompts)
        except ChipError as error:
            return Named(str(error))
        finally:
            session.runner.checker = None  # it would log its counts at the end
            judge.close()
        for found in judge.found.values():
            return Named(str(found), found.kept)
        return Named(
            f"no operator diverges from the oracle in {judge.checked} calls: look at weights, "
            "caches and page tables"
        )
