"""The names that a generated file may define: read off what it is made of."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from remat_gen.capture.as_eager.draws import compares_53_bits, draw_mask
from remat_gen.capture.rnn.run_whole import all_layers, lstm_layer, rnn_backward, run_rnn
from remat_gen.capture.rnn.step_by_step import STEPS, run_steps, steps_backward
from remat_gen.codegen.module import guards
from remat_gen.codegen.module.environment import source_of
from remat_gen.compile.fused_functions import compiled, fuse, only_result, with_lengths

_DEFINED = re.compile(r"^(?:def|class) (\w+)|^(\w+)(?:: [^=\n]+)? = ", re.MULTILINE)


@cache
def generated_names(
    *, parts: bool = False, offload: bool = False, units: bool = False, rungs: bool = False
) -> frozenset[str]:
    """Return the names of helpers, tables and guards; of what compiles, is sent, or is a unit's.

    With `rungs` those of the choice between programs as well.
    """
    templates = ["helpers.py.jinja", "kept.py.jinja", *["offload.py.jinja"] * offload]
    templates += ["units.py.jinja"] * units + ["rungs.py.jinja"] * rungs
    copied = [guards.sources(held=True), source_of(draw_mask, compares_53_bits)]
    copied.append(source_of(run_rnn, rnn_backward, run_steps, steps_backward))
    copied.append(source_of(all_layers, lstm_layer, *STEPS.values()))
    if parts:
        templates.append("parts.py.jinja")
        copied.append(source_of(compiled, fuse, with_lengths, only_result))
    folder = files("remat_gen.templates")
    texts = [folder.joinpath(name).read_text(encoding="utf-8") for name in templates]
    found = _DEFINED.findall("\n".join([*texts, *copied]))
    return frozenset(name for pair in found for name in pair if name)
