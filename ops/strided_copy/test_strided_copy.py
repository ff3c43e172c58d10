"""Accuracy of every kernel of strided_copy over the op's own problems; permutations undone, arrays cut and joined again, every bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from device import Buffer, Device, DeviceArray
from harness.discover import load_peers
from harness.pytest_plugin import GpuBenchmark
from harness.spec import Launchable, Problem
from harness.testing import OpUnderTest
from harness.timing.batches import Mode
from harness.verify.case import Case
from harness.verify.inputs import make_inputs
from harness.verify.judge import Verifier
from harness.verify.plan import Effort

UNDER_TEST = OpUnderTest(Path(__file__).parent)
OP = UNDER_TEST.op
VARIANTS = {k.name: k.bind(k.variants[0]) for k in OP.kernels}
# Proved by the fast tests; the slow ones prove the others.
FAST_KERNELS = ("merged",)
# Of packed and gathered, whichever test is first: nvcc takes a quarter of a minute for each.
of_large_kernels = pytest.mark.slow
BENCH = OP.select_problems("bench")
# The names of peers.py.
PEERS = load_peers(Path(__file__).parent)[0].open.__globals__
MAX_PIECES = 8
# Where pieces begin in a whole: they are not put into one.
NOWHERE = dict.fromkeys(("at_b", "at_n", "at_c", "at_d"), 0)

Open = Callable[[str], Launchable]
Thin = Callable[[Effort], Effort]


@pytest.fixture(scope="module")
def open_kernel(device: Device) -> Open:
    open_variant = UNDER_TEST.open(VARIANTS.values())
    return lambda kernel: open_variant(VARIANTS[kernel])


def launch(device: Device, launchable: Launchable, pieces: Sequence[tuple[DeviceArray, DeviceArray]]) -> None:
    """Copy each piece's first array, of five axes, to its second, by one launch."""
    arrays: dict[str, DeviceArray | None] = {f"{stem}{i}": None for stem in "xy" for i in range(MAX_PIECES)}
    for i, (x, y) in enumerate(pieces):
        arrays |= {f"x{i}": x, f"y{i}": y}
    stream = device.create_stream(non_blocking=True)
    launchable.launch(workspace=0, stream=stream.handle, pieces=len(pieces), whole=False, **NOWHERE, **arrays)
    device.synchronize()


def upload(device: Device, values: NDArray[np.generic]) -> Buffer:
    """Return a buffer with the elements of a contiguous array."""
    buffer = device.allocate(values.nbytes)
    buffer.view(values.shape, values.dtype).copy_from_host(values)
    return buffer


def permute(device: Device, launchable: Launchable, x: NDArray[np.generic], order: Sequence[int]) -> NDArray[np.generic]:
    """Return a contiguous array's elements with its axes in another order."""
    turned = x.transpose(order)
    y = device.empty(turned.shape, x.dtype)
    launch(device, launchable, [(upload(device, x).view(turned.shape, x.dtype, 0, turned.strides), y)])
    return y.copy_to_host()


@pytest.mark.parametrize("kernel", VARIANTS)
def test_kernel_verifies_on_every_problem(device: Device, open_kernel: Open, kernel: str, thin: Thin) -> None:
    problems = UNDER_TEST.verify(device, VARIANTS[kernel], open_kernel(kernel), thin(Effort(num_hidden=2)))
    assert {p.status for p in problems} == {"passed"}


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize("order", [(0, 1, 3, 4, 2), (0, 1, 4, 2, 3), (4, 3, 2, 1, 0), (2, 0, 4, 1, 3)], ids=str)
@pytest.mark.parametrize("kernel", VARIANTS)
def test_a_permutation_undone_is_the_identity_to_the_bit(
    device: Device, open_kernel: Open, kernel: str, order: tuple[int, ...], dtype: str
) -> None:
    rng = np.random.default_rng(5)
    shape = (2, 3, 17, 5, 34)
    x = np.frombuffer(rng.bytes(np.dtype(dtype).itemsize * int(np.prod(shape))), dtype).reshape(shape).copy()
    turned = permute(device, open_kernel(kernel), x, order)
    np.testing.assert_array_equal(turned, x.transpose(order))
    np.testing.assert_array_equal(permute(device, open_kernel(kernel), turned, np.argsort(order).tolist()), x)


@pytest.mark.parametrize(("dtype", "unit"), [("uint8", 1), ("int16", 1), ("int16", 8), ("int32", 3), ("int64", 1)])
@pytest.mark.parametrize("kernel", VARIANTS)
def test_slices_joined_again_are_the_array(device: Device, open_kernel: Open, kernel: str, dtype: str, unit: int) -> None:
    rng = np.random.default_rng(7)
    lengths = unit * rng.integers(1, 40, MAX_PIECES)
    x = rng.integers(0, 100, (2, 9, int(lengths.sum()), 1, 2)).astype(dtype)
    source, buffer = upload(device, x), device.allocate(x.nbytes)
    strides = x.strides
    pieces = []
    for at, length in zip(np.cumsum(lengths) - lengths, lengths, strict=True):
        shape, offset = (2, 9, int(length), 1, 2), int(at) * strides[2]
        pieces.append((source.view(shape, dtype, offset, strides), buffer.view(shape, dtype, offset, strides)))
    launch(device, open_kernel(kernel), pieces)
    np.testing.assert_array_equal(buffer.view(x.shape, dtype).copy_to_host(), x)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((64, 64), "int32"), ((3, 1000), "int32"), ((1000, 3), "int32"), ((64, 64), "int16"), ((64, 128), "int64")]
)
def test_no_access_to_shared_memory_conflicts(device: Device, open_kernel: Open, shape: tuple[int, int], dtype: str) -> None:
    if device.observer is None:
        pytest.skip("conflicts are counted on the emulated device")
    x = np.arange(shape[0] * shape[1], dtype=dtype).reshape(1, 1, 1, *shape)
    with device.observer.observe((), counters=True):
        device.observer.take_counters()
        y = permute(device, open_kernel("turned"), x, (0, 1, 2, 4, 3))
        (counted,) = device.observer.take_counters()
    np.testing.assert_array_equal(y, x.transpose(0, 1, 2, 4, 3))
    assert counted.counts["shared_load_wavefronts"] > 0
    assert counted.counts["shared_load_conflicts"] == 0
    # Of a side shorter than a warp some rows' ends meet.
    assert counted.counts["shared_store_conflicts"] <= (counted.counts["shared_store_wavefronts"] if shape[1] < 32 else 0)


# Rows and columns of 16 bytes, of 8, of 4, of a word and a half, and that begin anywhere; of a tile and more, and of a part.
EXTENTS = [(64, 128), (40, 200), (132, 36), (256, 50), (65, 131), (37, 300)]


@pytest.mark.parametrize("kernel", ["packed", "gathered"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize("shape", EXTENTS, ids=str)
def test_tiles_of_words_move_every_element(device: Device, open_kernel: Open, shape: tuple[int, int], dtype: str, kernel: str) -> None:
    rng = np.random.default_rng(11)
    # Of bytes more than what goes element after element.
    x = rng.integers(0, 127, (1, 16 if dtype == "uint8" else 2, 1, *shape)).astype(dtype)
    np.testing.assert_array_equal(permute(device, open_kernel(kernel), x, (0, 1, 2, 4, 3)), x.transpose(0, 1, 2, 4, 3))


@of_large_kernels
def test_large_tiles_of_eight_bytes_move_every_element(device: Device, open_kernel: Open) -> None:
    """There are enough for every multiprocessor, of whole accesses and of single elements."""
    for shape in ((24, 1, 1, 129, 372), (33, 1, 1, 130, 260)):
        x = np.arange(np.prod(shape), dtype="int64").reshape(shape)
        np.testing.assert_array_equal(permute(device, open_kernel("gathered"), x, (0, 1, 2, 4, 3)), x.transpose(0, 1, 2, 4, 3))


@pytest.mark.parametrize("kernel", ["packed", "gathered"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32"])
@pytest.mark.parametrize("order", [(3, 0, 4, 1, 2), (4, 2, 0, 3, 1), (0, 4, 3, 1, 2), (1, 4, 0, 2, 3), (2, 3, 4, 0, 1)], ids=str)
@pytest.mark.parametrize("shape", [(2, 18, 11, 41, 12), (3, 5, 8, 6, 16), (16, 4, 2, 9, 6)], ids=str)
def test_short_axes_that_go_on_in_others_share_a_tile(
    device: Device, open_kernel: Open, shape: tuple[int, ...], order: tuple[int, ...], dtype: str, kernel: str
) -> None:
    rng = np.random.default_rng(17)
    x = rng.integers(0, 127, shape).astype(dtype)
    np.testing.assert_array_equal(permute(device, open_kernel(kernel), x, order), x.transpose(order))


# Batches, rows and columns of tiles that are cut: small ones at words, and large ones at sectors, of a batch and of many.
CUT = [(3, 61, 259), (1, 300, 777), (150, 129, 131), (9, 260, 1031)]


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0, 1, 3])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize("shape", CUT, ids=str)
def test_cut_tiles_move_every_element_and_no_other(
    device: Device, open_kernel: Open, shape: tuple[int, int, int], dtype: str, gap: int
) -> None:
    """Rows of x and columns of y have gaps behind them, y begins at an element; x is cut from a buffer's end."""
    batches, rows, columns = shape
    rng, item = np.random.default_rng(29), np.dtype(dtype).itemsize
    x = rng.integers(0, 127, (batches, rows, columns + gap)).astype(dtype)
    around = rng.integers(0, 127, 1 + batches * columns * (rows + gap)).astype(dtype)
    source, buffer = upload(device, x.reshape(-1)[: x.size - gap]), upload(device, around)
    taken = (batches, 1, 1, columns, rows)
    pitch, y_pitch = (columns + gap) * item, (rows + gap) * item
    views = (
        source.view(taken, dtype, 0, (rows * pitch, 0, 0, item, pitch)),
        buffer.view(taken, dtype, item, (columns * y_pitch, 0, 0, y_pitch, item)),
    )
    launch(device, open_kernel("cut"), [views])
    around[1:].reshape(batches, columns, rows + gap)[..., :rows] = x[..., :columns].transpose(0, 2, 1)
    np.testing.assert_array_equal(buffer.view(around.shape, dtype).copy_to_host(), around)


# Slabs by themselves, and several to a block, the last of them short of some; rows with words behind them, and without; x turned or not.
SLABS = [
    ((403, 2, 25, 38), (0, 3, 2, 1)),
    ((1333, 1, 3, 6), (0, 1, 3, 2)),
    ((1800, 4, 8, 2), (0, 2, 3, 1)),
    ((134, 1, 49, 64), (0, 1, 3, 2)),
]


@of_large_kernels
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize(("shape", "order"), SLABS, ids=str)
def test_slabs_move_every_element(device: Device, open_kernel: Open, shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(23)
    x = rng.integers(0, 127, (1, *shape)).astype(dtype)
    axes = (0, *(1 + axis for axis in order))
    np.testing.assert_array_equal(permute(device, open_kernel("gathered"), x, axes), x.transpose(axes))


@of_large_kernels
@pytest.mark.parametrize("dtype", ["int16", "int32"])
def test_lanes_that_read_slabs_meet_in_pairs_at_most(device: Device, open_kernel: Open, dtype: str) -> None:
    if device.observer is None:
        pytest.skip("conflicts are counted on the emulated device")
    x = np.zeros((1, 414, 38, 25, 2), dtype)
    with device.observer.observe((), counters=True):
        device.observer.take_counters()
        permute(device, open_kernel("gathered"), x, (0, 1, 4, 3, 2))
        (counted,) = device.observer.take_counters()
    assert counted.counts["shared_load_wavefronts"] > 0
    assert counted.counts["shared_load_conflicts"] <= counted.counts["shared_load_wavefronts"] / 2


@pytest.mark.parametrize("shape", [(64, 64), (128, 256), (256, 33), (49, 200)], ids=str)
@pytest.mark.parametrize(
    ("kernel", "dtype"), [("packed", "uint8"), ("packed", "int16"), ("packed", "int32"), ("gathered", "int32"), ("gathered", "int64")]
)
def test_tiles_of_words_access_shared_memory_without_conflicts(
    device: Device, open_kernel: Open, shape: tuple[int, int], kernel: str, dtype: str
) -> None:
    if device.observer is None:
        pytest.skip("conflicts are counted on the emulated device")
    x = np.zeros((17 if kernel == "gathered" else 1, 1, 1, *shape), dtype)
    with device.observer.observe((), counters=True):
        device.observer.take_counters()
        permute(device, open_kernel(kernel), x, (0, 1, 2, 4, 3))
        (counted,) = device.observer.take_counters()
    assert counted.counts["shared_load_wavefronts"] > 0
    assert counted.counts["shared_load_conflicts"] == counted.counts["shared_store_conflicts"] == 0


@of_large_kernels
@pytest.mark.parametrize(("dtype", "most"), [("uint8", 110), ("int16", 110), ("int32", 110)])
def test_a_tile_of_words_takes_few_instructions(device: Device, open_kernel: Open, dtype: str, most: int) -> None:
    """At 219 warp instructions per KiB that moves, an H200 issues as long as its memory moves."""
    if device.observer is None:
        pytest.skip("instructions are counted on the emulated device")
    x = np.zeros((1, 1, 1, 256, 512), dtype)
    with device.observer.observe((), counters=True):
        device.observer.take_counters()
        permute(device, open_kernel("packed"), x, (0, 1, 2, 4, 3))
        (counted,) = device.observer.take_counters()
    moved_kib = 2 * x.nbytes / 1024
    assert 0 < counted.counts["warp_instructions"] / moved_kib <= most


@pytest.mark.parametrize("kernel", ["packed", "gathered"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32"])
@pytest.mark.parametrize("gaps", [False, True], ids=["no gaps", "gaps"])
def test_rows_that_begin_anywhere_are_shifted_into_place(device: Device, open_kernel: Open, dtype: str, gaps: bool, kernel: str) -> None:
    """Rows of x and y begin at every residue of 16 bytes against each other; what lies between the rows of y stays."""
    rng, item = np.random.default_rng(13), np.dtype(dtype).itemsize
    rows, columns, pitch = 33, 64 // item + 77, 64 // item + 78
    width = columns + 2 if gaps else columns
    x = rng.integers(0, 127, (rows, width)).astype(dtype)
    whole = rng.integers(0, 127, (rows, pitch)).astype(dtype)
    source, buffer = upload(device, x), upload(device, whole)
    shape = (1, 1, rows, 1, columns)
    views = (
        source.view(shape, dtype, 0, (0, 0, width * item, 0, item)),
        buffer.view(shape, dtype, item, (0, 0, pitch * item, 0, item)),
    )
    launch(device, open_kernel(kernel), [views])
    whole[:, 1:] = x[:, :columns]
    np.testing.assert_array_equal(buffer.view(whole.shape, dtype).copy_to_host(), whole)


def put(
    device: Device, launchable: Launchable, x: DeviceArray, shape: tuple[int, ...], places: Sequence[int], lead: int
) -> NDArray[np.generic]:
    """Return an array of this shape with ``x`` at ``places``, put by one launch that begins ``lead`` elements into a buffer of threes."""
    around = np.full(int(np.prod(shape)) + 2 * lead, 3, x.dtype)
    buffer = upload(device, around)
    y = buffer.view(shape, x.dtype, lead * x.dtype.itemsize)
    arrays: dict[str, DeviceArray | None] = {f"{stem}{i}": None for stem in "xy" for i in range(MAX_PIECES)} | {"x0": x, "y0": y}
    stream = device.create_stream(non_blocking=True)
    at = dict(zip(NOWHERE, places, strict=True))
    launchable.launch(workspace=0, stream=stream.handle, pieces=1, whole=True, **at, **arrays)
    device.synchronize()
    written = buffer.view(around.shape, x.dtype).copy_to_host()
    assert (written[:lead] == 3).all() and (written[lead + int(np.prod(shape)) :] == 3).all()
    return written[lead : lead + int(np.prod(shape))].reshape(shape)


# What is put (b, n, c, d), into what, and where: margins of one place, on one side only, of whole rows, rows of less than a pack, a crop.
MARGINS = [
    ((1, 5, 14, 14), (1, 5, 16, 16), (0, 0, 1, 1)),
    ((1, 3, 9, 31), (1, 3, 9, 40), (0, 0, 0, 9)),
    ((2, 3, 4, 30), (4, 5, 6, 30), (1, 2, 0, 0)),
    ((2, 3, 8, 3), (2, 5, 9, 5), (0, 1, 1, 1)),
    ((2, 6, 20, 50), (1, 4, 11, 41), (-1, -2, -3, -5)),
    ((3, 4, 5, 17), (7, 9, 11, 22), (2, 3, 4, 2)),
]


@of_large_kernels
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize(("inside", "outside", "places"), MARGINS, ids=[f"{inside} in {outside}" for inside, outside, _ in MARGINS])
def test_what_is_around_a_piece_is_zero(
    device: Device, open_kernel: Open, inside: tuple[int, ...], outside: tuple[int, ...], places: tuple[int, ...], dtype: str
) -> None:
    rng = np.random.default_rng(19)
    item = np.dtype(dtype).itemsize
    # Rows of x with gaps, and of its own; the second is cut from a buffer's end.
    for gap in (0, 3):
        x = rng.integers(1, 127, (2, *inside[:3], inside[3] + gap)).astype(dtype)
        source = upload(device, x.reshape(-1)[: x.size - gap]).view((2, *inside), dtype, 0, x.strides)
        expected = np.zeros((2, *(max(a, b) for a, b in zip(inside, outside, strict=True))), dtype)
        begin = tuple(max(at, 0) for at in places)
        taken = x[..., : inside[3]][(slice(None), *(slice(max(-at, 0), None) for at in places))]
        ends = tuple(slice(b, b + n) for b, n in zip(begin, taken.shape[1:], strict=True))
        expected[(slice(None), *ends)] = taken
        expected = expected[(slice(None), *(slice(0, extent) for extent in outside))]
        for lead in {0, 1, 16 // item - 1}:
            np.testing.assert_array_equal(put(device, open_kernel("gathered"), source, (2, *outside), places, lead), expected)


@of_large_kernels
def test_a_margin_takes_few_instructions(device: Device, open_kernel: Open) -> None:
    """At 219 warp instructions per KiB that moves, an H200 issues as long as its memory moves."""
    if device.observer is None:
        pytest.skip("instructions are counted on the emulated device")
    x = np.ones((4, 1, 16, 56, 56), "int16")
    with device.observer.observe((), counters=True):
        source = upload(device, x).view(x.shape, x.dtype)
        device.observer.take_counters()
        y = put(device, open_kernel("gathered"), source, (4, 1, 16, 58, 58), (0, 0, 1, 1), 0)
        (counted,) = device.observer.take_counters()
    assert y.sum() == x.sum()
    assert 0 < counted.counts["warp_instructions"] / ((x.nbytes + y.nbytes) / 1024) <= 210


def test_libraries_are_asked_for_what_a_problem_is() -> None:
    find_task = PEERS["find_task"]
    assert find_task([(1, 2, 3, 1, 4)], None, [0] * 5) == ("copy", "")
    assert find_task([(1, 2, 3, 1, 4), (1, 2, 5, 1, 4)], (1, 2, 8, 1, 4), [0] * 5) == ("join", "")
    assert find_task([(1, 2, 3, 6, 4)], (1, 2, 3, 8, 7), [0, 0, 0, 1, 2]) == ("pad", "")
    assert "no one call" in find_task([(1, 2, 3, 1, 4)], (1, 2, 2, 1, 4), [0] * 5)[1]


@pytest.mark.parametrize("runs", ["EAGER", "COMPILED"])
def test_libraries_give_what_the_op_does(runs: str) -> None:
    torch = pytest.importorskip("torch", reason="the libraries' functions need PyTorch")
    for problem in OP.problems:
        if "verify" not in problem.suites or problem.attributes["dtype"] == "bfloat16":
            continue
        inputs = make_inputs(OP, problem, "uniform")
        expected = OP.reference(inputs, problem)
        places = [0, *(int(problem.scalars.get(f"at_{axis}", 0)) for axis in "bncd")]
        whole = expected["y0"].shape if problem.attributes["whole"] else None
        task, reason = PEERS["find_task"]([x.shape for x in inputs.values()], whole, places)
        if not task:
            assert whole is not None and "no one call" in reason
            continue
        xs = [torch.from_numpy(np.ascontiguousarray(x)) for x in inputs.values()]
        ys = [torch.full(y.shape, 3).to(xs[0].dtype) for y in expected.values()]
        PEERS[runs][task](xs, ys, places)
        for y, known in zip(ys, expected.values(), strict=True):
            np.testing.assert_array_equal(y.numpy().astype(np.float64), known)


@pytest.mark.slow  # liars are compiled and proved
@pytest.mark.parametrize(
    ("kernel", "old", "new", "kinds"),
    [
        # Accesses are widened where elements are neighbours in y alone.
        ("merged", "axes[0].x_step != item || ", "", {"mismatch"}),
        # A tile that is not whole is left out.
        (
            "turned",
            "(shape.axes[0].extent - 1 >> piece->log_down) + 1",
            "std::max<std::int64_t>(shape.axes[0].extent >> piece->log_down, 1)",
            {"not_written"},
        ),
        (
            "packed",
            "(across.extent - 1 >> piece->log_across) + 1",
            "std::max<std::int64_t>(across.extent >> piece->log_across, 1)",
            {"not_written"},
        ),
        # A row that begins just before a multiple of 16 has a pack more.
        ("packed", "inner = {(row_bytes + 14) / 16 + 1, 0, 0}", "inner = {(row_bytes + 15) / 16, 0, 0}", {"not_written"}),
    ],
    ids=["looks at y alone", "whole tiles", "whole tiles of words", "aligned rows"],
)
def test_a_plan_that_leaves_something_out_is_refused(
    device: Device, tmp_path: Path, kernel: str, old: str, new: str, kinds: set[str]
) -> None:
    liar = UNDER_TEST.patch(tmp_path, "strided_copy/planning.hpp", old, new)
    variant = VARIANTS[kernel]
    result = Verifier(liar.op, device, Effort(num_hidden=0)).verify(variant, liar.open([variant])(variant))
    assert kinds <= {fault.kind.value for fault in result.all_faults}
    refused = {p.problem for p in result.problems if p.faults}
    plain = {p.name for p in OP.select_problems("verify") if not p.orders and not p.padding and not p.attributes["whole"]}
    assert refused and not refused & plain


@pytest.mark.slow  # a kernel is compiled and proved
@pytest.mark.parametrize("kernel", ["packed", "gathered"])
def test_pieces_that_are_numbered_in_64_bits_are_right(device: Device, tmp_path: Path, kernel: str) -> None:
    """They have 2^31 accesses and more; here the limit is lower."""
    low = UNDER_TEST.patch(tmp_path, "strided_copy/planning.hpp", "(std::int64_t{1} << 31) - (1 << 16)", "100")
    low = low.patch(tmp_path / "few", "strided_copy/planning.hpp", "kManyBlocks = 1 << 16", "kManyBlocks = 2")
    variant = VARIANTS[kernel]
    problems = low.verify(device, variant, low.open([variant])(variant), Effort(num_hidden=0))
    assert {p.status for p in problems} == {"passed"}


@pytest.mark.gpu
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("problem", BENCH, ids=[p.name for p in BENCH])
@pytest.mark.parametrize("kernel", VARIANTS)
def test_speed(gpu_benchmark: GpuBenchmark, open_kernel: Open, kernel: str, problem: Problem, mode: Mode) -> None:
    with Case(gpu_benchmark.timer.device, OP, problem) as case:
        case.upload(make_inputs(OP, problem, "uniform"))
        gpu_benchmark.run_case(case, open_kernel(kernel), mode)
