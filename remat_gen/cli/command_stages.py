"""The command `stages`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from remat_gen.ask.generate_options import GenerateOptions, option
from remat_gen.cli import option_texts as o
from remat_gen.terminal.interrupt import reported

Model = Annotated[Path, typer.Argument(metavar="MODEL.py", show_default=False)]
Stages = Annotated[int, typer.Option(metavar="N", help="Stages of the model.", show_default=False)]
MicroBatches = Annotated[
    int, typer.Option(metavar="N", help="Micro-batches of a step.", show_default=False)
]
Schedule = Annotated[str, typer.Option(metavar="NAME", help="GPipe|1F1B|Interleaved1F1B [1F1B]")]
Devices = Annotated[
    int | None, typer.Option(metavar="N", help="Stage s is on device s % N [one each].")
]
Builder = Annotated[
    str | None, typer.Option(metavar="NAME", help="Called (stage, stages) [build_stage].")
]
Inputs = Annotated[
    str | None, typer.Option(metavar="NAME", help="Called (stage, stages) [stage_inputs].")
]
Written = Annotated[
    str | None,
    typer.Option("-o", "--output", metavar="FILE", help="[MODEL_stage{stage}_remat.py]"),
]


@o.with_generate_options(
    "budget",
    "device_memory",
    "optimizer",
    "headroom",
    "device",
    "target",
    "units",
    "effort",
    "static",
    "force",
    "reprofile",
    "fresh",
    budget=option("SIZE", "For activations on each device: 6GB, 1.5GiB."),
)
def stages(
    model_file: Model,
    stages: Stages,
    micro_batches: MicroBatches,
    options: GenerateOptions,
    schedule: Schedule = "1F1B",
    devices: Devices = None,
    output: Written = None,
    model: Builder = None,
    inputs: Inputs = None,
    as_json: o.JsonOption = False,
    quiet: o.QuietOption = False,
    debug: o.DebugOption = False,
) -> None:
    """Plan every stage of a pipeline within the memory of its device; each gets a file.

    \b
    remat-gen stages gpt.py --stages 4 --micro-batches 8 --device-memory 24GB

    Stages run as torch.distributed.pipelining has them. Counted are the micro-batches that wait for
    their backward, and what the pipeline itself receives, sends and keeps.
    """
    with reported(quiet=quiet) as progress:
        from remat_gen.pipelined.micro_batch_order import make_pipeline
        from remat_gen.pipelined.planning_stages import plan_stages
        from remat_gen.pipelined.stages_text import stages_json, stages_table

        pipeline = make_pipeline(schedule, stages, micro_batches, devices)
        place = Path(output) if output else None
        planned = plan_stages(
            pipeline, replace(options, model=model, inputs=inputs), model_file, place, progress
        )
    if as_json:
        print(json.dumps(stages_json(planned), indent=1))
    elif not quiet:
        Console().print(stages_table(planned), highlight=False)
