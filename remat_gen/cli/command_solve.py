"""The command `solve`: schedule a bare graph. Nothing here needs torch."""

from __future__ import annotations

import json
import sys

import typer
from rich.console import Console

from remat_gen.ask.generate_options import GenerateOptions
from remat_gen.cli import option_texts as o
from remat_gen.solver.law.search_types import INTERRUPTED
from remat_gen.terminal.interrupt import reported


@o.with_generate_options("strategy", "effort")
def solve(
    graph: o.GraphFile,
    budget: o.GraphBudget,
    options: GenerateOptions,
    as_json: o.JsonOption = False,
    quiet: o.QuietOption = False,
    debug: o.DebugOption = False,
) -> None:
    """Schedule a bare graph within a memory budget; no model, no torch.

    \b
    remat-gen solve graph.json --budget 70%

    GRAPH.json has {"nodes": [{"name", "time", "bytes", "backward", "inputs": [names]}, ...]} in
    topological order, and may list "outputs": names of values that live to the end from their first
    run on. A node runs with its inputs and its output resident; any other node may run again.
    Checkmate's DFGraph is read as well: {"v", "args", "cost_cpu", "cost_ram", "backward_nodes"}; so
    is rotor's Chain, {"fw", "bw", "cw", "cbw", "ftmp", "btmp"} or as it is printed. --json prints
    the schedule; where none fits, the smallest budget for which one was found.
    """
    from remat_gen.bare.bare_result import infeasible, result_json, result_table, solve_graph

    with reported(quiet=quiet) as progress:
        result = solve_graph(graph, budget, options.strategy.value, options.effort, progress)
    if as_json:
        print(json.dumps(result_json(result), indent=1))
    if result.solution is None:
        error = infeasible(result)
        if not as_json:
            raise error
        print(f"remat-gen: error: {error}", file=sys.stderr)
        raise typer.Exit(error.exit_code)
    if result.solution.interrupted:
        print(f"remat-gen: {INTERRUPTED}", file=sys.stderr)
    if not as_json and not quiet:
        Console().print(result_table(result))
