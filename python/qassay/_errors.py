"""What is raised. A verdict is an AssertionError; what is no verdict never is."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._result import Result


class KernelFailure(AssertionError):
    """The result is outside what the kernel's arithmetic allows. `result` has everything that was found."""

    def __init__(self, text: str, result: "Result") -> None:
        super().__init__(text)
        self.result = result

    def __reduce__(self):
        return type(self), (self.args[0], self.result)


class NoPower(AssertionError):
    """The data could not have shown the faults that matter: all-zero outputs, unit scales. Give other data, or `power="ignore"`."""

    def __init__(self, text: str, result: "Result") -> None:
        super().__init__(text)
        self.result = result

    def __reduce__(self):
        return type(self), (self.args[0], self.result)


class InputError(ValueError):
    """Tensors or settings that do not fit together. Says what was found, what was expected, what to type."""


class CheckerError(RuntimeError):
    """The checker ended or misbehaved: no verdict. Never an AssertionError, so that xfail and retries do not take it for one."""


class CheckerTimeout(CheckerError):
    """The checker did not answer in time and was ended: no verdict."""


# In every frame of ours: pytest then shows the line of the test. Other errors keep their trace.
HIDE = operator.methodcaller("errisinstance", (KernelFailure, NoPower, InputError, TypeError))
