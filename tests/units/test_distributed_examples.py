"""The scripts of examples/distributed, by two gloo processes: what eager's model prints."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import pytest
from distributed_scripts import ScriptRun, copied, last_lines
from planned_units import modelled

import remat_gen

GPT = {
    "DDP": ("ddp.py", ""),
    "FSDP2": ("fsdp2.py", ""),
    "GPipe": ("pipeline.py", "GPipe"),
    "1F1B": ("pipeline.py", "1F1B"),
    "Interleaved1F1B": ("pipeline.py", "Interleaved1F1B"),
}
STAGES = ScriptRun("pipeline.py", "gpt_stage{stage}_remat", "1F1B")
LLAMA = {  # and the library that the script uses
    "ddp.py": "transformers",
    "fsdp2.py": "transformers",
    "pipeline.py": "transformers",
    "accelerate_ddp.py": "accelerate",
    "accelerate_fsdp2.py": "accelerate",
    "trainer_ddp.py": "accelerate",
    "lightning_ddp.py": "pytorch_lightning",
}
Said = list[dict[ScriptRun, str]]


@pytest.mark.alone
def test_planned_units_train_as_eager_does(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    with mock.patch("remat_gen.capture.profile.profile.profile", modelled):
        made = remat_gen.generate(folder / "gpt.py", budget="60%", units=["h.*"])
        remat_gen.generate_stages(folder / "gpt.py", stages=2, micro_batches=4, budget="4MB")
    assert made.plan.predicted.reruns > 0
    pairs = {
        name: [ScriptRun(script, module, schedule) for module in ("gpt", "gpt_remat")]
        for name, (script, schedule) in GPT.items()
    }
    both = last_lines(folder, [STAGES, *(run for pair in pairs.values() for run in pair)])
    for rank, said in enumerate(both):
        for name, (eager, planned) in pairs.items():
            assert said[eager].startswith(f"rank {rank}: losses ")
            assert said[planned] == said[eager], name
        assert said[STAGES] == said[pairs["1F1B"][0]]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Said:
    pytest.importorskip("transformers")
    folder = copied(tmp_path_factory.mktemp("llama"))
    with mock.patch("remat_gen.capture.profile.profile.profile", modelled):
        made = remat_gen.generate(
            folder / "llama.py", budget="60%", units=["model.layers.*"], fsdp=2
        )
        cut = remat_gen.generate_stages(
            folder / "llama.py", stages=2, micro_batches=4, budget="4MB"
        )
    for planned in (made, cut.stages[0]):
        assert planned.plan.predicted.reruns > 0
    there = [script for script, library in LLAMA.items() if find_spec(library)]
    return last_lines(folder, [run for script in there for run in _of_llama(script)])


def _of_llama(script: str) -> list[ScriptRun]:
    """Return the run of eager's model, and the planned one's."""
    if script == "pipeline.py":
        return [ScriptRun(script, m, "1F1B") for m in ("llama", "llama_stage{stage}_remat")]
    return [ScriptRun(script, module) for module in ("llama", "llama_remat")]


@pytest.mark.alone
@pytest.mark.parametrize("script", LLAMA)
def test_a_planned_llama_trains_as_eager_does(script: str, llama: Said) -> None:
    """The scripts assert what wraps the model: FSDP2 is FSDP2, and no DDP in its place."""
    pytest.importorskip(LLAMA[script])
    eager, planned = _of_llama(script)
    for rank, said in enumerate(llama):
        assert said[eager].startswith(f"rank {rank}: losses ")
        assert said[planned] == said[eager]
    hashes = {said[eager].rpartition(" ")[-1] for said in llama}
    assert len(hashes) == (2 if script == "pipeline.py" else 1)


@pytest.mark.alone
def test_accelerate_shards_as_one_does_by_hand(llama: Said) -> None:
    pytest.importorskip("accelerate")
    for said in llama:
        assert said[_of_llama("accelerate_fsdp2.py")[1]] == said[_of_llama("fsdp2.py")[1]]
