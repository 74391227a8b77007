"""Which files of tests take longest."""

from __future__ import annotations

LONG = (
    *("chips/cpu/test_cpu_linear.py", "answers/test_smollm2.py", "conform/test_defective_chips.py"),
    *("cli/test_cli_doctor_shapes.py", "conform/test_conform_operators.py"),
    *("cli/test_cli_doctor.py", "chips/kunlun/test_kunlun_troubles_models.py"),
    *("ops/test_grid_cases.py", "conform/test_conform_kit.py", "cli/test_cli_conform.py"),
    *("chips/cpu/test_cpu_chip.py", "chips/kunlun/test_kunlun_answers.py"),
    *("bench_peers/test_peers_race.py", "bench_regress/test_regress_baselines.py"),
    *("schedule/test_schedule_life_small_pages.py", "soak/test_soak.py", "cli/test_cli_build.py"),
)
"""They take half a minute and more. The first compiles what others wait for."""
