THREADS = Tunable("threads", (64, 128, 256, 512, 1024), "threads of a block")

# The domains: what each kernel serves; `supports` is generated from them.
_MAX_BLOCKS = 2**31 - 1
_SIZE = Count({"n": 1}, max=2**40)
_ALIGNED = tuple(Rows(name, 16) for name in ("x", "scale", "shift", "y"))

KERNELS = (
    Kernel(
        "scalar",
        "@{ kind.kernels.scalar }@",
        (THREADS,),
        (),
        ({"threads": 128}, {"threads": 256}),
        domain=lambda t: (_SIZE, Count({"n": t["threads"]}, max=_MAX_BLOCKS)),
        tile=lambda t: {"n": t["threads"]},
    ),
    Kernel(
        "vector",
        "@{ kind.kernels.vector }@",
        (THREADS,),
        (),
        ({"threads": 128}, {"threads": 256}),
        domain=lambda t: (_SIZE, Count({"n": 4 * t["threads"]}, max=_MAX_BLOCKS), *_ALIGNED),
        tile=lambda t: {"n": 4 * t["threads"]},
    ),
)

SIZES = ("n",)
SUITES = {
    "verify": ((1,), (3,), (31,), (127,), (128,), (1021,), (4100,)),
    "emulated": ((65536,),),
    "bench": ((1 << 24,), (1 << 27,)),
}
