"""Which modules are layers: blocks in stages, not experts; in no list, those made alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from tracing import BLOCK, source, traced

from remat_gen.ir.graph import Phase

STAGE = """
class Stage(nn.Module):
    def __init__(self, depth, enter=False):
        super().__init__()
        self.enter = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)) if enter else nn.Identity()
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        x = self.enter(x)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)
"""

STAGES = "self.stages = nn.ModuleList([Stage(2), Stage(1, enter=True), Stage(3, enter=True)])"
ALL = "for stage in self.stages:\n    x = stage(x)\nreturn x.sum()"


def inner(folder: Path, init: str, forward: str, before: str) -> set[str]:
    """Return the lists whose members are layers though they stand in other lists."""
    return set(traced(folder, source(init, forward, before=before)).graph.layers.inner)


def test_blocks_of_stages_are_layers_also_where_there_is_one(tmp_path: Path) -> None:
    found = inner(tmp_path, STAGES, ALL, BLOCK + STAGE)
    assert found == {"stages.0.blocks", "stages.1.blocks", "stages.2.blocks"}


def test_operations_belong_to_the_block_or_to_its_stage(tmp_path: Path) -> None:
    graph = traced(tmp_path, source(STAGES, ALL, before=BLOCK + STAGE)).graph
    layers = {o.module: graph.layers.of(o.module) for o in graph.operations}
    assert layers["stages.2.blocks.1.norm"] == "stages.2.blocks.1"
    assert layers["stages.2.enter.1"] == "stages.2"
    assert layers["stages.2.norm"] == "stages.2"


def test_sequences_in_a_sequence(tmp_path: Path) -> None:
    init = (
        "stages = [nn.Sequential(*(Block() for _ in range(n))) for n in (1, 2)]\n"
        "self.features = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.GELU()), *stages)"
    )
    found = inner(tmp_path, init, "return self.features(x).sum()", BLOCK)
    assert found == {"features.1", "features.2"}  # the stem is no list of blocks


@pytest.mark.parametrize(
    "forward",
    [
        "y = sum(expert(x) for expert in self.experts)\n        return x + y",
        "y = x\n        for part in self.experts:\n            y = part(y)\n        return x + y",
        "y = torch.cat([e(x) for e in self.experts], 1)\n        return y[:, :8]",
    ],
    ids=["experts", "halves with a way around", "heads"],
)
def test_what_is_part_of_a_layer_is_none(tmp_path: Path, forward: str) -> None:
    layer = (
        "\nclass Layer(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.experts = nn.ModuleList(Block() for _ in range(3))\n\n"
        f"    def forward(self, x):\n        {forward}\n"
    )
    init = "self.h = nn.ModuleList(Layer() for _ in range(2))"
    run = "for layer in self.h:\n    x = layer(x)\nreturn x.sum()"
    assert inner(tmp_path, init, run, BLOCK + layer) == set()


def test_blocks_of_different_kinds_are_halves_of_a_layer(tmp_path: Path) -> None:
    other = BLOCK.replace("class Block", "class Other").replace("mlp", "attn")
    init = "self.h = nn.ModuleList(nn.ModuleList([Block(), Other()]) for _ in range(2))"
    run = "for one, other in self.h:\n    x = other(one(x))\nreturn x.sum()"
    assert inner(tmp_path, init, run, BLOCK + other) == set()


def test_a_block_that_runs_twice_is_no_row(tmp_path: Path) -> None:
    run = "for stage in self.stages:\n    x = stage(stage(x))\nreturn x.sum()"
    assert inner(tmp_path, STAGES, run, BLOCK + STAGE) == set()


def test_a_constant_stands_where_it_is_read(tmp_path: Path) -> None:
    block = BLOCK.replace("x + self", "x * torch.tensor([1.0, 2.0] * 4) + self")
    init = "self.h = nn.ModuleList(Block() for _ in range(2))"
    graph = traced(
        tmp_path, source(init, "for h in self.h:\n    x = h(x)\nreturn x.sum()", before=block)
    ).graph
    constants = [o for o in graph.operations if o.target == "remat.constant"]
    assert [(o.name, o.module) for o in constants] == [
        ("h.0.constant", "h.0"),
        ("h.1.constant", "h.1"),
    ]
    assert all(o.source.line for o in constants)


def test_parameters_of_a_layer_are_called_as_its_attributes(tmp_path: Path) -> None:
    block = BLOCK.replace(
        "        self.norm",
        "        self.gamma = nn.Parameter(torch.ones(width))\n        self.norm",
    ).replace("self.mlp(self", "self.gamma * self.mlp(self")
    init = "self.h = nn.ModuleList(Block() for _ in range(2))"
    graph = traced(
        tmp_path, source(init, "for h in self.h:\n    x = h(x)\nreturn x.sum()", before=block)
    ).graph
    hints = {i.path: graph.tensors[i.tensor].hint for i in graph.inputs}
    assert hints["h.0.gamma"] == "gamma"
    assert hints["h.1.mlp.0.weight"] == "mlp_0_weight"
    assert hints["h.1.norm.weight"] == "norm_weight"


TOWER = (
    "\nclass Tower(nn.Module):\n    def __init__(self, depth):\n        super().__init__()\n"
    "        self.blocks = nn.ModuleList(Block() for _ in range(depth))\n\n"
    "    def forward(self, x):\n        for block in self.blocks:\n            x = block(x)\n"
    "        return x\n"
)
MLP = ["one.mlp.0", "one.mlp.1", "one.mlp.2"]
INCEPTION = (
    "\nclass Conv(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.conv, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)\n\n"
    "    def forward(self, x):\n        return torch.relu(self.norm(self.conv(x)))\n\n\n"
    "class Inception(nn.Module):\n    def __init__(self, width=8):\n        super().__init__()\n"
    "        self.wide = nn.Parameter(torch.ones(width))\n        self.first = Conv()\n"
    "        self.second = nn.Sequential(Conv(), Conv())\n"
    "        self.third = nn.Sequential(Conv(), Conv())\n\n"
    "    def forward(self, x):\n        return self.first(x) + self.second(x) + self.third(x)\n"
)
PARTS = ["second.0", "second.1", "third.0", "third.1"]
HALF = (
    "\nclass Half(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.down1, self.down2 = Block(), Block()\n\n"
    "    def forward(self, x):\n        return self.down2(self.down1(x))\n"
)


@pytest.mark.parametrize(
    ("init", "run", "found"),
    [
        (
            "self.stem, self.h = Block(), nn.ModuleList([Block(), Block()])",
            "for layer in (self.stem, *self.h):\n    x = layer(x)",
            ["stem", "h.0", "h.1"],
        ),
        ("self.net = Half()", "x = self.net(x)", ["net.down1", "net.down2"]),
        ("self.a, self.b = Half(), Half()", "x = self.b(self.a(x))", ["a", "b"]),
        ("self.one, self.norm = Block(), nn.LayerNorm(8)", "x = self.norm(self.one(x))", MLP),
        (
            "self.left, self.right = Tower(2), Tower(2)",
            "x = self.left(x) + self.right(x)",
            ["left.blocks.0", "left.blocks.1", "right.blocks.0", "right.blocks.1"],
        ),
        (
            "self.stem, self.a, self.b = Conv(), Inception(), Inception()",
            "x = self.b(self.a(self.stem(x)))",
            ["a", "b"],
        ),
        (
            "self.a, self.b = Inception(), Inception(16)",
            "x = self.b(self.a(x))",
            [f"{at}.{path}" for at in "ab" for path in PARTS],
        ),
    ],
    ids=[
        "beside a list",
        "in a lone module",
        "outermost",
        "alone",
        "with lists",
        "branches",
        "others",
    ],
)
def test_modules_that_are_made_alike_are_layers(
    init: str, run: str, found: list[str], tmp_path: Path
) -> None:
    text = source(init, f"{run}\nreturn x.sum()", before=BLOCK + TOWER + HALF + INCEPTION)
    graph = traced(tmp_path, text).graph
    layers = (graph.layers.of(o.module) for o in graph.operations if o.phase is Phase.FORWARD)
    assert [layer for layer in dict.fromkeys(layers) if layer] == found
