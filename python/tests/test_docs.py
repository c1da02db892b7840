"""Doctests, and what the package says of itself."""

import doctest
import importlib.metadata
import inspect
import os
import pathlib

import pytest

import qassay
from qassay import _checks


def test_doctests():
    result = doctest.testmod(_checks)
    assert result.attempted >= 5 and result.failed == 0


@pytest.mark.parametrize("name", qassay.__all__)
def test_everything_public_is_documented(name):
    thing = getattr(qassay, name)
    assert inspect.getdoc(thing), name
    if inspect.isfunction(thing) and name not in ("serve",):
        signature = inspect.signature(thing)
        assert signature.return_annotation is not inspect.Signature.empty, name


def test_the_installed_package():
    assert qassay.__version__ == importlib.metadata.version("qassay")
    assert (pathlib.Path(qassay.__file__).parent / "py.typed").exists()
    assert os.access(qassay.program(), os.X_OK)
