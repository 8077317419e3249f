"""Let torchvision import where its compiled operators do not load.

Its wheels are built for one torch and for CUDA. The models that are used here need none of the
operators; importing torchvision registers shapes for two of them, whose schemas must be there.
"""

from __future__ import annotations

import importlib.util

import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_declared: list[torch.library.Library] = []  # a library's operators live as long as it does


def import_torchvision() -> None:
    """Import torchvision, declaring its operators if that is what it lacks."""
    if importlib.util.find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS:
            library.define(schema)
        _declared.append(library)
        importlib.import_module("torchvision")
