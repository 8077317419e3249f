"""A model and its inputs by a call with literals: `--model 'mlp(8, depth=3)'`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

import remat_gen
from remat_gen.capture.load.named_calls import named_call

SOURCE = """
import torch
from torch import nn


def mlp(width, /, *more, depth=2, **other):
    layers = [nn.Linear(width, width) for _ in range(depth)]
    return nn.Sequential(*layers, *map(nn.Linear, more, more), nn.Tanh())


def rows(count, width=8):
    return (torch.randn(count, width),)
"""


@pytest.mark.parametrize("units", [(), ("0", "1")], ids=["whole", "units"])
def test_the_written_builder_takes_the_same_arguments(
    tmp_path: Path, units: tuple[str, ...]
) -> None:
    path = tmp_path / "net.py"
    path.write_text(SOURCE)
    made = remat_gen.generate(
        path, budget="100%", builder="mlp(8, 8, depth=3)", inputs="rows(16)", units=units
    )
    assert made.output is not None
    assert "--model 'mlp(8, 8, depth=3)' --inputs 'rows(16)'" in made.plan.asked.command
    assert not remat_gen.check(made.output).stale
    assert remat_gen.verify(made.output).ok
    spec = importlib.util.spec_from_file_location("net_remat", made.output)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "def mlp(width, /, *more, depth=2, **other) -> nn.Module:" in made.text
    assert len(module.mlp(8, 8, depth=3)) == 5
    assert module.mlp(8, 8, depth=3)(torch.randn(16, 8)).shape == (16, 8)


@pytest.mark.parametrize("text", ["mlp(n)", "a.b", "mlp(8", "mlp(**{})", "1", "mlp()()", ""])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(remat_gen.RematError, match="give a name of the file, or a call of it"):
        named_call(text, "--model")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"builder": "mlp"}, r"mlp needs arguments \(width\); give them with --model"),
        ({"builder": "mlp(8)", "inputs": "rows"}, "rows needs arguments .* with --inputs"),
        ({"builder": "mpl(8)"}, "--model mpl is not in the file"),
        ({"builder": "mlp('a')", "inputs": "rows(2)"}, r"mlp\('a'\)"),
    ],
)
def test_what_lacks_or_fails_is_named(tmp_path: Path, options: dict[str, str], words: str) -> None:
    path = tmp_path / "net.py"
    path.write_text(SOURCE)
    with pytest.raises(remat_gen.RematError, match=words):
        remat_gen.generate(path, budget="100%", **options)
