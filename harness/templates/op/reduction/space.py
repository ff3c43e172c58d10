WARP_SIZE = 32
THREADS = Tunable("threads", (32, 64, 128, 256, 512, 1024), "threads of a block")

# The domains: what each kernel serves; `supports` is generated from them.
_MAX_BLOCKS = 2**31 - 1
_SHAPE = (Count({"rows": 1}, max=2**40), Count({"columns": 1}, max=2**40))

KERNELS = (
    Kernel(
        "thread_per_row",
        "@{ kind.kernels.thread_per_row }@",
        (THREADS,),
        (),
        ({"threads": 128},),
        domain=lambda t: (*_SHAPE, Count({"rows": t["threads"]}, max=_MAX_BLOCKS)),
        tile=lambda t: {"rows": t["threads"]},
    ),
    Kernel(
        "warp_per_row",
        "@{ kind.kernels.warp_per_row }@",
        (THREADS,),
        (),
        ({"threads": 128}, {"threads": 256}),
        domain=lambda t: (*_SHAPE, Count({"rows": t["threads"] // WARP_SIZE}, max=_MAX_BLOCKS)),
        tile=lambda t: {"rows": t["threads"] // WARP_SIZE},
    ),
    Kernel(
        "block_per_row",
        "@{ kind.kernels.block_per_row }@",
        (THREADS,),
        (),
        ({"threads": 128}, {"threads": 256}),
        domain=lambda t: (*_SHAPE, Count({"rows": 1}, max=_MAX_BLOCKS)),
        tile=lambda t: {"rows": 1},
    ),
)

SIZES = ("rows", "columns")
SUITES = {
    "verify": ((1, 1), (3, 31), (33, 32), (5, 127), (129, 3), (2, 1025), (64, 100)),
    "emulated": ((256, 1000),),
    "bench": ((1 << 20, 64), (1 << 16, 1000), (1 << 10, 1 << 16)),
}
