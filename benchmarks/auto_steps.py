"""What `auto` finds, which of its steps finds it, and how long that takes.

python benchmarks/auto_steps.py [DATA_FOLDER] [NAME …] > benchmarks/results/auto_steps.md

DATA_FOLDER holds vgg16.json and unet.json, the profiled training graphs of Checkmate's evaluation.
The examples are traced again, and solved by the costs in their plans. NAMEs choose graphs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from large_graphs import layered

from remat_gen.bare.graph_file import parse_graph
from remat_gen.review.retrace import retrace_file
from remat_gen.solver.law.bare_graph import BareGraph, Node
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.solve import InfeasibleError, Solver

EXAMPLES = Path(__file__).parents[1] / "examples"
HEAD = ("graph", "operations", "budget", "time", "bound", "found by", "s")


def deep_chain(length: int, seed: int) -> BareGraph:
    """Return a chain of layers that all differ; backward reads a layer's input and output."""
    random = Random(seed)
    nodes: list[Node] = []
    for i in range(length + 1):
        inputs = (i - 1,) if i else ()
        time_us, nbytes = float(random.randint(1, 10)), random.randint(1, 16)
        nodes.append(Node(f"f{i}", time_us, nbytes, False, inputs))
    for i in reversed(range(length)):
        inputs = tuple(dict.fromkeys((len(nodes) - 1, i, i + 1)))
        time_us, nbytes = float(2 * random.randint(1, 10)), random.randint(1, 16)
        nodes.append(Node(f"b{i}", time_us, nbytes, True, inputs))
    return BareGraph(tuple(nodes))


def graphs(
    data: Path | None,
) -> Iterator[tuple[str, Callable[[], BareGraph | Problem], tuple[int, ...]]]:
    """Yield graphs and budgets in % of the plain peak."""
    for length, seed, shares in ((16, 1, (40,)), (24, 1, (35,)), (24, 2, (25,)), (32, 2, (20,))):
        yield f"chain of {length}, seed {seed}", lambda n=length, s=seed: deep_chain(n, s), shares
    for nodes, width, seed, shares in (
        (28, 4, 607, (75,)),
        (500, 10, 1, (80,)),
        (1000, 10, 0, (90,)),
    ):
        yield (
            f"layered {nodes}, seed {seed}",
            lambda n=nodes, w=width, s=seed: layered(n, w, s),
            shares,
        )
    if data is not None:
        yield "VGG16", lambda: parse_graph((data / "vgg16.json").read_text()), (95, 90, 85)
        yield "U-Net", lambda: parse_graph((data / "unet.json").read_text()), (90, 80, 60, 50, 45)
    for name in ("gpt", "resnet", "unet", "transformer", "hf_llama"):
        path = EXAMPLES / f"{name}_remat.py"
        yield f"{name}.py", lambda path=path: retrace_file(path).problem, (80, 60, 40, 30)


def main() -> None:
    """Print the table as Markdown."""
    words = sys.argv[1:]
    data = Path(words.pop(0)) if words and Path(words[0]).is_dir() else None
    print("# auto\n\nTimes over running each operation once; processor seconds.\n")
    print(f"| {' | '.join(HEAD)} |\n{'|---' * len(HEAD)}|")
    for name, make, shares in graphs(data):
        if not words or any(name.startswith(word) for word in words):
            graph = make()
            for share in shares:
                print(f"| {name} | {' | '.join(row(graph, share))} |", flush=True)


def row(graph: BareGraph | Problem, share: int) -> tuple[str, ...]:
    """Return the cells of one budget."""
    solver = Solver(graph, "auto")
    begun = time.process_time()
    cells = ("–", "–", "nothing")
    try:
        found = solver.solve(solver.plain.peak_bytes * share // 100)
        once = solver.plain.time_us
        cells = (
            f"{found.replay.time_us / once:.4f}",
            f"{found.lower_bound_us / once:.4f}",
            found.strategy,
        )
    except InfeasibleError:
        pass
    took = f"{time.process_time() - begun:.1f}"
    return (str(len(solver.problem.operations)), f"{share} %", *cells, took)


if __name__ == "__main__":
    main()
