"""Bytes that a program moves are read from its text, as compilers for CPU, GPU and TPU write it."""

from __future__ import annotations

import pytest

from gtjax.sharding.collectives import bytes_received, collectives

GROUPS = "replica_groups={{0,1,2,3}}"
MIB = 2**20


def only(line: str):
    (found,) = collectives(line)
    return found


@pytest.mark.parametrize(
    ("line", "kind", "received"),
    [
        # Of a group of 4, a device already has a quarter of what it gathers or trades.
        (f"  %a = f32[1024,256]{{1,0}} all-gather(%x), {GROUPS}", "all-gather", 0.75 * MIB),
        (f"  %a = bf16[1024,256]{{1,0}} all-to-all(%x), {GROUPS}", "all-to-all", 0.375 * MIB),
        # The result of a reduce-scatter is a quarter of what the device sends away.
        (f"  %a = f32[256,256]{{1,0}} reduce-scatter(%x), {GROUPS}", "reduce-scatter", 0.75 * MIB),
        (f"  %a = f32[1024,256]{{1,0}} all-reduce(%x), {GROUPS}", "all-reduce", 1.5 * MIB),
        # A TPU's layouts have tiles and memory spaces, whose brackets and numbers are no shapes.
        (
            f"  %a = f32[1024,256]{{0,1:T(8,128)S(1)}} all-gather(%copy.5), channel_id=6, {GROUPS},"
            " dimensions={0}, backend_config={"
            '"scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"16777216"}]}',
            "all-gather",
            0.75 * MIB,
        ),
        # Several tables at once, numbered by the way.
        (
            "  %a = (f32[512,256]{1,0:T(8,128)S(1)}, /*index=1*/f32[512,256]{1,0:T(8,128)}) "
            f"all-reduce(%x, %y), {GROUPS}, to_apply=%sum",
            "all-reduce",
            1.5 * MIB,
        ),
        # Where a program goes on meanwhile, the result has the operands before the results.
        (
            "  %a = (f32[256,256]{1,0:T(8,128)}, f32[1024,256]{1,0:T(8,128)S(1)}) "
            f"all-gather-start(%x), {GROUPS}",
            "all-gather",
            0.75 * MIB,
        ),
        (
            "  %a = ((f32[128,256]{1,0}, f32[128,256]{1,0}), (f32[512,256], f32[512,256])) "
            f"all-gather-start(%x, %y), {GROUPS}",
            "all-gather",
            0.75 * MIB,
        ),
        # Groups as a range, and by the axes of a mesh.
        (
            "  %a = f32[1024,256] all-gather(%x), replica_groups=[2,4]<=[8], dimensions={0}",
            "all-gather",
            0.75 * MIB,
        ),
        (
            "  %a = f32[1024,256]{1,0:T(8,128)} all-reduce(%x), "
            "replica_groups=mesh['node'=8,'feature'=4] {'feature'}, to_apply=%sum",
            "all-reduce",
            1.5 * MIB,
        ),
    ],
)
def test_every_device_of_a_group_receives_as_much(line, kind, received):
    found = only(line)
    assert (found.kind, found.devices) == (kind, 4)
    assert [found.received_by(device) for device in range(4)] == [received] * 4


@pytest.mark.parametrize(
    "result",
    [
        "f32[2,256,128]{2,1,0} collective-permute",
        "(f32[2,256,128]{1,2,0:T(8,128)S(1)}, f32[2,256,128]{1,2,0:T(8,128)S(1)}, u32[]{:S(2)}, "
        "u32[]{:S(2)}) collective-permute-start",
    ],
)
def test_only_those_receive_to_whom_something_is_sent(result):
    found = only(f"  %p = {result}(%x), channel_id=1, source_target_pairs={{{{3,0}},{{0,2}}}}")
    assert found.kind == "collective-permute"
    assert [found.received_by(device) for device in range(4)] == [MIB / 4, 0, MIB / 4, 0]


def test_the_busiest_device_counts_and_what_is_done_later_counts_once():
    hlo = """
  %p = (f32[1024], f32[1024]) collective-permute-start(%x), source_target_pairs={{0,1}}
  %q = (f32[512], f32[512], u32[], u32[]) collective-permute-start(%x), source_target_pairs={{1,0}}
  %pd = f32[1024] collective-permute-done(%p)
  %qd = f32[512] collective-permute-done(%q)
  %f = f32[2048] fusion(%pd), kind=kLoop, calls=%fused_all-gather
"""
    assert bytes_received(hlo, 2) == {"collective-permute": 4096}


def test_a_program_without_collectives_moves_nothing():
    assert bytes_received("  %a = f32[8] add(%x, %y)", 8) == {}
