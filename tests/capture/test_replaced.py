"""What is put in place of an attribute is there for the block alone, and leaves no trace."""

from __future__ import annotations

import math

import pytest

from remat_gen.capture.process.replaced import replaced


class Base:
    @staticmethod
    def told() -> str:
        return "base"


class Child(Base):
    pass


def test_of_a_module() -> None:
    pi = math.pi
    with replaced(math, "pi", 3.0):
        assert math.pi == 3.0
    assert math.pi is pi


def test_a_static_method_stays_one() -> None:
    with replaced(Base, "told", staticmethod(lambda: "other")):
        assert Base().told() == Base.told() == Child().told() == "other"
    assert isinstance(vars(Base)["told"], staticmethod)
    assert Base().told() == "base"


def test_what_is_a_bases_is_taken_away_again() -> None:
    with replaced(Child, "told", staticmethod(lambda: "other")):
        assert (Child.told(), Base.told()) == ("other", "base")
    assert "told" not in vars(Child)


def test_it_is_put_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), replaced(math, "pi", 3.0):
        raise ZeroDivisionError
    assert math.pi != 3.0


def test_what_is_not_there_is_not_replaced() -> None:
    with pytest.raises(AttributeError), replaced(math, "tau_of_another_version", 3.0):
        pass
    assert not hasattr(math, "tau_of_another_version")
