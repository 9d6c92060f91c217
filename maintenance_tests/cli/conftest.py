"""Fixtures of the command line's tests."""

import pytest

from maintenance_tests.cli.shell import Shell


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    """The command line in this process."""
    return Shell(capsys)
