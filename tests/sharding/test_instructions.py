"""What instructions are for is read from the text of a program."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gtjax
from gtjax.sharding.instructions import instruction_kinds

SCOPE = 'metadata={op_name="jit(f)/transpose(jvp())/shard_map/along_edges/mul" stack_frame_id=4}'


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("  %a.1 = f32[8]{0} all-reduce-start(%x), to_apply=%sum", "communication"),
        # Rows that travel are communication, also where an op along edges asks for them.
        (f"  %a.1 = f32[8]{{0}} collective-permute(%x), {SCOPE}", "communication"),
        (
            f'  %a.1 = (f32[8]{{0}}) custom-call(%x), custom_call_target="gtjax_gat", {SCOPE}',
            "edges",
        ),
        (f"  ROOT %a.1 = f32[8]{{0:T(8,128)}} fusion(%x), calls=%other, {SCOPE}", "edges"),
        (f"  %a.1 = f32[8,8]{{1,0}} dot(%x, %y), {SCOPE}", "edges"),
        ("  %a.1 = f32[8,8]{1,0} dot(%x, %y)", "dense"),
        ('  %a.1 = f32[8]{0} custom-call(%x), custom_call_target="__cublas$gemm"', "dense"),
        ('  %a.1 = f32[8]{0} custom-call(%x), custom_call_target="topk"', "other"),
        ("  %a.1 = (f32[8]{0}, /*index=1*/f32[8]{0}) fusion(%x), calls=%product", "dense"),
        ("  %a.1 = f32[8]{0} fusion(%x), calls=%other", "other"),
        ("  a.1 = f32[8]{0} tanh(x)", "other"),
    ],
)
def test_what_an_instruction_is_for(line, kind):
    computations = """HloModule jit_f, is_scheduled=true

%product (p: f32[8,8]) -> f32[8,8] {
  %p = f32[8,8]{1,0} parameter(0)
  ROOT %dot.1 = f32[8,8]{1,0} dot(%p, %p)
}

%other (q: f32[8]) -> f32[8] {
  ROOT %q = f32[8]{0} parameter(0)
}

ENTRY %main (x: f32[8]) -> f32[8] {
"""
    assert instruction_kinds(f"{computations}{line}\n}}\n")["a.1"] == kind


def test_gradients_of_ops_along_edges_are_known_too():
    graph = gtjax.load("synthetic-citation:nodes=53,seed=1")
    bound = gtjax.bind(graph, gtjax.ParallelConfig(devices=1))

    def loss(weight, x_nf, neighbours):
        return jnp.square(neighbours.mean(x_nf @ weight)).sum()

    weight = np.ones((graph.num_features, 3), np.float32)
    step = jax.jit(jax.grad(loss)).lower(weight, bound.inputs.x_nf, bound.neighbours).compile()
    text = step.as_text()
    assert {"edges", "dense"} <= set(instruction_kinds(text).values())
    names = re.findall(r'op_name="([^"]*along_edges[^"]*)"', text)
    assert {"transpose(" in name for name in names} == {False, True}
