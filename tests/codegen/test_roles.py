"""Kept values have one name in all blocks of a class: also those that only some of them make."""

from __future__ import annotations

from remat_gen.codegen.classes.roles import Roles, kept_marks
from remat_gen.codegen.expressions.marks import kept
from remat_gen.codegen.statements.statements import Body, Function, Statement


def body(block: int, name: str, blocks: tuple[int, ...]) -> Body:
    """Return a block that makes something, where it is one of `blocks`."""
    own = Statement(f"{kept(block, name)} = torch.neg(x)", blocks=blocks)
    return Body(block, Function((own,), {}), Function((), {}), ())


def test_what_the_first_block_does_not_make() -> None:
    """They were named by the blocks that read them: two readers, two names of one attribute."""
    bodies = [body(1, "a", (2, 3)), body(2, "a", (2, 3)), body(3, "b", (2, 3))]
    roles = Roles()
    for one in bodies:
        roles.add(kept_marks(one)[1:] if one.block == 1 else kept_marks(one))
    assert roles.of("a") != roles.of("b")
    assert roles.unite(*bodies)
    assert roles.of("a") == roles.of("b")
