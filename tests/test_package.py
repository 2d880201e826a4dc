"""The public door: every name opens, and only those."""

import importlib

import pytest

import draftwise


@pytest.mark.parametrize("name", draftwise.__all__)
def test_a_public_name_is_the_one_its_module_defines(name: str) -> None:
    value = getattr(draftwise, name)
    assert value is getattr(importlib.import_module(value.__module__), name)
    assert value.__doc__


def test_the_table_of_modules_lists_the_public_names() -> None:
    assert sorted(draftwise._MODULE_OF) == sorted(draftwise.__all__) == dir(draftwise)


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'speculate'"):
        _ = draftwise.speculate
