"""The timeline in bands, as a picture stacks them: retained by module, run again, gradients, …"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from remat_gen.ir.graph import Graph
from remat_gen.picture.timeline_owners import Part, Residence, Stay, bytes_by_run

MODULES = 8  # bands of retained bytes at most; neighbours are merged


@dataclass(frozen=True, slots=True)
class Band:
    """Bytes during each run, of one part; `label` is the module of a retained one."""

    part: Part
    label: str
    nbytes: tuple[int, ...]

    @property
    def highest_bytes(self) -> int:
        """Return the most that the band ever holds."""
        return max(self.nbytes, default=0)


def bands_of(graph: Graph, residence: Residence, root: str = "forward") -> tuple[Band, ...]:
    """Return the bands from the bottom to the top; their sums are the replay's bytes.

    What no submodule made is called `root`.
    """
    by_part: dict[Part, list[Stay]] = {part: [] for part in Part}
    for stay in residence.stays:
        by_part[residence.part(stay)].append(stay)
    retained = _merged(_by_module(graph, residence, by_part[Part.RETAINED]), residence)
    parts = [(Part.RETAINED, label or root, stays) for label, stays in retained]
    back = (Part.FETCHED,) * bool(by_part[Part.FETCHED])
    others = (Part.RERUN, *back, Part.GRADIENT, Part.TRANSIENT)
    parts += [(part, part.value, by_part[part]) for part in others]
    *bands, last = (Band(p, name, tuple(bytes_by_run(residence, s))) for p, name, s in parts)
    own = (nbytes + r.own_bytes for nbytes, r in zip(last.nbytes, residence.runs, strict=True))
    return (*bands, replace(last, nbytes=tuple(own)))


def total_bytes(bands: Sequence[Band]) -> list[int]:
    """Return the bytes of all bands during each run."""
    return [sum(column) for column in zip(*(band.nbytes for band in bands), strict=True)]


def module_of(graph: Graph, stay: Stay) -> str:
    """Return the repeated layer, else the outermost module, that made what stays."""
    if stay.producer is None:
        return ""
    path = graph.operations[stay.producer].module
    return graph.layers.of(path) or path.partition(".")[0]


def _by_module(
    graph: Graph, residence: Residence, stays: list[Stay]
) -> list[tuple[list[str], list[Stay]]]:
    """Group stays by module, the modules whose values come first at the bottom."""
    groups: dict[str, list[Stay]] = {}
    for stay in stays:
        groups.setdefault(module_of(graph, stay), []).append(stay)

    def middle(group: list[Stay]) -> float:
        sizes = [residence.problem.values[stay.value].nbytes for stay in group]
        begins = (size * stay.begin for size, stay in zip(sizes, group, strict=True))
        return sum(begins) / max(sum(sizes), 1)

    ordered = sorted(groups.items(), key=lambda item: (middle(item[1]), item[0]))
    return [([module], group) for module, group in ordered]


def _merged(
    groups: list[tuple[list[str], list[Stay]]], residence: Residence
) -> list[tuple[str, list[Stay]]]:
    """Merge the two neighbours of fewest bytes until few enough are left."""

    def weight(i: int) -> int:
        pair = groups[i][1] + groups[i + 1][1]
        return sum(residence.problem.values[stay.value].nbytes for stay in pair)

    groups = list(groups)
    while len(groups) > MODULES:
        i = min(range(len(groups) - 1), key=weight)
        modules, stays = groups.pop(i + 1)
        groups[i] = (groups[i][0] + modules, groups[i][1] + stays)
    named = [([module for module in modules if module], stays) for modules, stays in groups]
    return [
        (f"{names[0]} … {names[-1]}" if len(names) > 1 else "".join(names), stays)
        for names, stays in named
    ]
