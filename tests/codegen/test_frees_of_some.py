"""What is freed by some of a class's blocks alone is said under a condition, with its bytes."""

from __future__ import annotations

from remat_gen.codegen.classes.paragraphs import paragraphs
from remat_gen.codegen.expressions.marks import fill, kept
from remat_gen.codegen.statements.statements import Statement


def test_what_the_written_block_does_not_free_keeps_its_word() -> None:
    x = kept(0, "x")
    bodies = [(Statement(frees=((x, nbytes),), blocks=(11, 16)),) for nbytes in (0, 4096, 8192)]
    (paragraph,) = paragraphs(bodies, lambda text: fill(text, lambda mark: mark.name))
    assert paragraph.lines == ("if self.at in (11, 16):", "    del x  # free 4 to 8 KiB")
