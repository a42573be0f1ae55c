"""Memory that is freed is kept where the C library can, and nothing breaks where it cannot."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gtjax.core import allocator

SCRIPT = """
import resource
import numpy as np
from gtjax.core.allocator import keep_freed_memory
if {keeps}:
    assert keep_freed_memory()
def faults():
    np.ones(30_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
faults()
before = faults()
print(faults() - before)
"""


def test_elsewhere_it_is_not_granted(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not allocator.keep_freed_memory()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc is on Linux")
def test_memory_is_used_again_instead_of_mapped_anew():
    found = {}
    for keeps in (False, True):
        command = [sys.executable, "-c", SCRIPT.format(keeps=keeps)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[keeps] = int(done.stdout)
    assert found[True] < 100
    assert found[False] > 100 * max(1, found[True])
