TILE = Tunable("tile", (8, 16, 32), "rows and columns of C that a block computes, a thread per element")

# The domains: what each kernel serves; `supports` is generated from them.
_MAX = 2**31 - 1


def _serve(t: Mapping[str, int]) -> tuple[Count, ...]:
    return (*(Count({name: 1}, max=_MAX) for name in "MNK"), Count({"M": t["tile"], "N": t["tile"]}, max=_MAX))


def _find_tile(t: Mapping[str, int]) -> Mapping[str, int]:
    return {"M": t["tile"], "N": t["tile"]}


KERNELS = (
    Kernel("naive", "@{ kind.kernels.naive }@", (TILE,), (), ({"tile": 16},), domain=_serve, tile=_find_tile),
    Kernel(
        "smem_tiled",
        "@{ kind.kernels.smem_tiled }@",
        (TILE,),
        (),
        ({"tile": 16}, {"tile": 32}),
        domain=_serve,
        tile=_find_tile,
    ),
)

SIZES = ("M", "N", "K")
SUITES = {
    "verify": ((1, 1, 1), (17, 3, 5), (31, 33, 32), (64, 64, 64), (65, 15, 100), (2, 130, 47)),
    "emulated": ((128, 128, 128),),
    "bench": ((2048, 2048, 2048), (4096, 1024, 4096)),
}
