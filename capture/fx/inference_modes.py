"""What runs in `torch.inference_mode()` within a forward, traced as in `torch.no_grad()`.

The numbers are the same. Fake tensors made in inference mode would lose the gradients of all that
reads them, and torch's dispatcher its state (2.13).
"""

from __future__ import annotations

import torch
from torch.autograd import grad_mode


def without_inference_mode(graph: torch.fx.Graph) -> None:
    """Switch gradients off and on where a captured forward enters the mode and leaves it."""
    enabled, before = True, dict[torch.fx.Node, bool]()
    for node in list(graph.nodes):
        if node.target is torch._C._set_grad_enabled:
            enabled = node.args[0]
            continue
        if node.target is grad_mode._enter_inference_mode:
            before[node], enabled = enabled, enabled and not node.args[0]
        elif node.target is grad_mode._exit_inference_mode:
            enabled = before[node.args[0]]
        else:
            continue
        with graph.inserting_before(node):
            graph.call_function(torch._C._set_grad_enabled, (enabled,))
    for entered in before:
        for left in [*entered.users, entered]:
            graph.erase_node(left)
