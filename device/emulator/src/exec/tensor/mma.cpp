// Tensor-core instructions of a warp: mma, wmma, ldmatrix, stmatrix, movmatrix.
#include <algorithm>

#include "../warp/warp.hpp"
#include "tensor.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

namespace {

constexpr uint32_t kMaxCells = 1024;  // of a result

// Rows of a fragment in tiles -> a packed row-major matrix of `rows` rows of `row_bytes`. Registers go along the rows of tiles first.
template <typename Row>
void gather_tiles(uint32_t rows, uint32_t row_bytes, Row row, bool is_64, bool rows_first, uint8_t* to) {
    const uint32_t tile_bytes = is_64 ? 32 : 16;
    const uint32_t down = rows / 8, across = row_bytes / tile_bytes;
    for (uint32_t x = 0; x < across; ++x) {
        for (uint32_t y = 0; y < down; ++y) {
            const uint8_t* from = row(rows_first ? x * down + y : y * across + x);
            uint8_t* at = to + y * 8 * row_bytes + x * tile_bytes;
            for (uint32_t r = 0; r < 8; ++r) std::memcpy(at + r * row_bytes, from + r * tile_bytes, tile_bytes);
        }
    }
}

// Accumulators: tiles of 8x8, those of one column of tiles first. A lane has two neighbouring columns of a row: in two registers of 32 or
// 64 bits, or in one of f16.
template <typename Cell, typename Row>
void gather_accumulator(uint32_t m, uint32_t n, Row row, Cell* to) {
    for (uint32_t x = 0; x < n / 8; ++x) {
        for (uint32_t y = 0; y < m / 8; ++y) {
            const uint32_t first = 2 * (x * (m / 8) + y);
            const Cell* left = reinterpret_cast<const Cell*>(row(first));
            const Cell* right = reinterpret_cast<const Cell*>(row(first + 1));
            Cell* at = to + y * 8 * n + x * 8;
            for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
                at[lane / 4 * n + lane % 4 * 2] = left[lane];
                at[lane / 4 * n + lane % 4 * 2 + 1] = right[lane];
            }
        }
    }
}

template <typename Row>
void gather_halves(uint32_t m, uint32_t n, Row row, uint32_t* to) {
    for (uint32_t x = 0; x < n / 8; ++x) {
        for (uint32_t y = 0; y < m / 8; ++y) {
            const uint32_t* from = reinterpret_cast<const uint32_t*>(row(x * (m / 8) + y));
            uint32_t* at = to + y * 8 * n + x * 8;
            for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
                at[lane / 4 * n + lane % 4 * 2] = from[lane] & 0xFFFF;
                at[lane / 4 * n + lane % 4 * 2 + 1] = from[lane] >> 16;
            }
        }
    }
}

template <typename Cell>
void put_lanes(Cell* row, const Cell* values, uint32_t mask) {
    if (mask == ~0u) {
        std::memcpy(row, values, sizeof(Cell) * kWarpLanes);
        return;
    }
    for_lanes(mask, [&](uint32_t lane) { row[lane] = values[lane]; });
}

template <typename Cell, typename Row>
void scatter_accumulator(uint32_t m, uint32_t n, Row row, const Cell* from, uint32_t mask) {
    alignas(64) Cell left[kWarpLanes], right[kWarpLanes];
    for (uint32_t x = 0; x < n / 8; ++x) {
        for (uint32_t y = 0; y < m / 8; ++y) {
            const Cell* at = from + y * 8 * n + x * 8;
            for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
                left[lane] = at[lane / 4 * n + lane % 4 * 2];
                right[lane] = at[lane / 4 * n + lane % 4 * 2 + 1];
            }
            const uint32_t first = 2 * (x * (m / 8) + y);
            put_lanes(reinterpret_cast<Cell*>(row(first)), left, mask);
            put_lanes(reinterpret_cast<Cell*>(row(first + 1)), right, mask);
        }
    }
}

template <typename Row>
void scatter_halves(uint32_t m, uint32_t n, Row row, const uint32_t* from, uint32_t mask) {
    alignas(64) uint32_t both[kWarpLanes];
    for (uint32_t x = 0; x < n / 8; ++x) {
        for (uint32_t y = 0; y < m / 8; ++y) {
            const uint32_t* at = from + y * 8 * n + x * 8;
            for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
                both[lane] = (at[lane / 4 * n + lane % 4 * 2] & 0xFFFF) | at[lane / 4 * n + lane % 4 * 2 + 1] << 16;
            }
            put_lanes(reinterpret_cast<uint32_t*>(row(x * (m / 8) + y)), both, mask);
        }
    }
}

// Each row of a sparse A multiplies other rows of B: `cells` is the accumulator, in and out.
void sparse_multiply(const MatrixForm& form, const uint8_t* a, const uint8_t* b, const uint32_t* metadata, uint32_t* cells) {
    SparseUnits units;
    find_sparse_units(form, metadata, units);
    alignas(64) uint8_t chosen[32 * 128];
    MatrixForm part = form;
    part.m = 1;
    part.k = form.k / 2;
    const uint32_t row_bytes = part.k * bits_of(form.a) / 8;
    for (uint32_t row = 0; row < form.m; ++row) {
        gather_sparse(form, units[row], b, chosen);
        multiply(part, a + row * row_bytes, chosen, cells + row * form.n(), cells + row * form.n());
    }
}

TensorType counted_as(Elem elem) {
    switch (elem) {
        case Elem::kBF16: return TensorType::kBF16;
        case Elem::kTF32: return TensorType::kTF32;
        case Elem::kF64: return TensorType::kF64;
        case Elem::kE4M3:
        case Elem::kE5M2: return TensorType::kF8;
        case Elem::kS8:
        case Elem::kU8: return TensorType::kI8;
        case Elem::kS4:
        case Elem::kU4: return TensorType::kI4;
        case Elem::kB1: return TensorType::kB1;
        default: return TensorType::kF16;
    }
}

}  // namespace

template <Mode M>
void Interpreter<M>::mma(const Inst& inst, uint32_t mask) {
    if (inst.mode != 0) return wmma_access(inst, mask, inst.mode == 2);
    if (!together(inst, mask)) return;
    const uint32_t* const list = &image_.operand_lists[inst.imm];
    const MatrixForm form = get_form(list);
    count_tensor(counted_as(form.a), 2ull * form.m * form.n() * form.k * (form.quad_pairs ? 4 : 1) / (form.sparse ? 2 : 1));
    const uint32_t* operands = list + kFormWords;
    if (form.quad_pairs) {
        quad_pair_mma(inst, mask);
        ++pc_;
        return;
    }
    const uint32_t m = form.m, n = form.n(), k = form.k, stored_k = form.sparse ? k / 2 : k;
    const bool is_64 = form.a == Elem::kF64;
    // Counts of registers as written: wmma keeps copies of small fragments, which come last and are not read.
    const uint32_t num_d = inst.bytes, num_a = inst.vec, num_b = inst.dbytes;
    alignas(64) uint8_t a[32 * 128], b[32 * 128];
    alignas(64) uint64_t cells[kMaxCells];
    const auto rows_from = [&](uint32_t first) { return [this, operands, first](uint32_t i) { return row(operands[first + i]); }; };
    gather_tiles(m, stored_k * bits_of(form.a) / 8, rows_from(num_d), is_64, true, a);
    gather_tiles(n, k * bits_of(form.b) / 8, rows_from(num_d + num_a), is_64, false, b);
    const auto c_rows = rows_from(num_d + num_a + num_b);
    if (is_64)
        gather_accumulator(m, n, c_rows, cells);
    else if (form.c == Elem::kF16)
        gather_halves(m, n, c_rows, reinterpret_cast<uint32_t*>(cells));
    else
        gather_accumulator(m, n, c_rows, reinterpret_cast<uint32_t*>(cells));
    if (form.sparse)
        sparse_multiply(form, a, b, row32(operands[num_d + num_a + num_b + accumulator_registers(m, n, form.c)]),
                        reinterpret_cast<uint32_t*>(cells));
    else
        multiply(form, a, b, cells, cells);
    const auto d_rows = rows_from(0);
    if (is_64)
        scatter_accumulator(m, n, d_rows, cells, mask);
    else if (form.d == Elem::kF16)
        scatter_halves(m, n, d_rows, reinterpret_cast<uint32_t*>(cells), mask);
    else
        scatter_accumulator(m, n, d_rows, reinterpret_cast<uint32_t*>(cells), mask);
    ++pc_;
}

// m8n8k4 of f16: lanes 4 q to 4 q + 3 and 16 above them make a multiplication of their own. (PTX ISA, "Matrix Fragments for
// mma.m8n8k4 with .f16 floating point type".) sm_90 has no such instruction; PTX's is computed, each product and sum in f32.
template <Mode M>
void Interpreter<M>::quad_pair_mma(const Inst& inst, uint32_t mask) {
    const MatrixForm form = get_form(&image_.operand_lists[inst.imm]);
    const uint32_t* operands = &image_.operand_lists[inst.imm + kFormWords];
    const uint32_t num_d = form.d == Elem::kF16 ? 4 : 8;
    const auto half_of = [&](uint32_t first, uint32_t lane, uint32_t i) {
        return static_cast<uint16_t>(row32(operands[first + i / 2])[lane] >> (i % 2 * 16));
    };
    uint32_t out[8][kWarpLanes];
    for (uint32_t pair = 0; pair < 4; ++pair) {
        const auto lane_of = [&](uint32_t thread) { return pair * 4 + thread % 4 + thread / 4 * 16; };
        uint16_t a[8][4], b[8][4];
        uint32_t c[64];
        for (uint32_t thread = 0; thread < 8; ++thread) {
            for (uint32_t i = 0; i < 4; ++i) {
                const uint16_t left = half_of(num_d, lane_of(thread), i), right = half_of(num_d + 2, lane_of(thread), i);
                form.a_col ? a[thread / 4 * 4 + i][thread % 4] = left : a[thread][i] = left;
                form.b_row ? b[thread / 4 * 4 + i][thread % 4] = right : b[thread][i] = right;
            }
        }
        // Where element i of an accumulator lies.
        const auto cell = [](Elem elem, uint32_t thread, uint32_t i) {
            if (elem == Elem::kF16) return thread * 8 + i;
            const uint32_t y = thread % 2 + (i >> 1 & 1) * 2 + thread / 4 * 4, x = (thread >> 1 & 1) * 2 + i % 2 + i / 4 * 4;
            return y * 8 + x;
        };
        for (uint32_t thread = 0; thread < 8; ++thread) {
            for (uint32_t i = 0; i < 8; ++i) {
                c[cell(form.c, thread, i)] =
                    form.c == Elem::kF16 ? half_of(num_d + 4, lane_of(thread), i) : row32(operands[num_d + 4 + i])[lane_of(thread)];
            }
        }
        multiply_quad_pair(form, &a[0][0], &b[0][0], c);
        for (uint32_t thread = 0; thread < 8; ++thread) {
            for (uint32_t i = 0; i < 8; ++i) {
                const uint32_t value = c[cell(form.d, thread, i)];
                if (form.d != Elem::kF16)
                    out[i][lane_of(thread)] = value;
                else if (i % 2 == 0)
                    out[i / 2][lane_of(thread)] = value;
                else
                    out[i / 2][lane_of(thread)] |= value << 16;
            }
        }
    }
    for (uint32_t i = 0; i < num_d; ++i) put_lanes(row32(operands[i]), out[i], mask);
}

// Addresses of matrix rows in this block's shared memory, from the lanes that give them: 8 lanes a matrix. Returns the lanes whose rows may
// be accessed; sees to checks, races and counters.
template <Mode M>
uint32_t Interpreter<M>::matrix_rows(const Inst& inst, uint32_t mask, bool is_store, uint64_t* address) {
    const uint32_t matrices = inst.vec;
    const uint32_t givers = matrices == 4 ? ~0u : (1u << (8 * matrices)) - 1;
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
        uint64_t at = static_cast<uint64_t>(inst.offset);
        if (inst.flags & kFlagHasBase) at += inst.flags & kFlagBase64 ? row64(inst.a)[lane] : row32(inst.a)[lane];
        if ((at & kWindowMask) == kSharedWindow) at &= ~kWindowMask;
        uint32_t offset = 0;
        address[lane] = at <= ~0u && shared_of(static_cast<uint32_t>(at), offset) == &block_ ? offset : at;
    }
    uint32_t good = mask & givers;
    bool fine = true;
    for_lanes(good, [&](uint32_t lane) { fine &= block_.has_shared(address[lane], 16) && address[lane] % 16 == 0; });
    if (!fine) good = check_shared(good, address, 16, is_store, false);
    if (good == 0) return 0;
    if constexpr (kChecks) {
        if (checking(kRacecheck)) {
            if (is_store)
                race_write(good, address, 16, false, nullptr);
            else
                race_read(good, address, 16, false);
        }
        if (checking(kInitcheck)) {
            if (is_store) {
                for_lanes(good, [&](uint32_t lane) { std::memset(block_.shared_state + address[lane], 1, 16); });
            } else {
                constexpr uint64_t kWritten = 0x0101010101010101;
                uint64_t differs = 0;
                for_lanes(good, [&](uint32_t lane) {
                    uint64_t state[2];
                    std::memcpy(state, block_.shared_state + address[lane], 16);
                    differs |= (state[0] ^ kWritten) | (state[1] ^ kWritten);
                });
                if (differs) {
                    uint64_t lo = ~0ull, hi = 0;
                    for_lanes(good, [&](uint32_t lane) {
                        lo = std::min(lo, address[lane]);
                        hi = std::max(hi, address[lane]);
                    });
                    check_shared_init(good, address, 16, lo, hi);
                }
            }
        }
    }
    if constexpr (kCount) {
        if (good == givers) count_matrix(address, matrices, is_store);
    }
    return good;
}

template <Mode M>
void Interpreter<M>::load_matrix(const Inst& inst, uint32_t mask) {
    if (!together(inst, mask)) return;
    alignas(64) uint64_t address[kWarpLanes];
    deferring_ = true;
    const uint32_t good = matrix_rows(inst, mask, false, address);
    deferring_ = false;
    if (fatal_) return;
    const bool transpose = inst.mode;
    for (uint32_t i = 0; i < inst.vec; ++i) {
        alignas(64) uint16_t tile[64] = {}, turned[64];
        for (uint32_t r = 0; r < 8; ++r) {
            if (good >> (i * 8 + r) & 1) std::memcpy(tile + r * 8, block_.shared + address[i * 8 + r], 16);
        }
        if (transpose) {
            for (uint32_t r = 0; r < 8; ++r) {
                for (uint32_t c = 0; c < 8; ++c) turned[c * 8 + r] = tile[r * 8 + c];
            }
        }
        alignas(64) uint32_t lanes[kWarpLanes];
        std::memcpy(lanes, transpose ? turned : tile, sizeof lanes);
        put_lanes(row32(listed(inst, i)), lanes, mask);
    }
    ++pc_;
}

template <Mode M>
void Interpreter<M>::store_matrix(const Inst& inst, uint32_t mask) {
    if (!together(inst, mask)) return;
    alignas(64) uint64_t address[kWarpLanes];
    const uint32_t good = matrix_rows(inst, mask, true, address);
    if (fatal_) return;
    const bool transpose = inst.mode;
    for (uint32_t i = 0; i < inst.vec; ++i) {
        alignas(64) uint16_t tile[64], turned[64];
        std::memcpy(tile, row32(listed(inst, i)), sizeof tile);
        if (transpose) {
            for (uint32_t r = 0; r < 8; ++r) {
                for (uint32_t c = 0; c < 8; ++c) turned[c * 8 + r] = tile[r * 8 + c];
            }
        }
        const uint16_t* rows = transpose ? turned : tile;
        for (uint32_t r = 0; r < 8; ++r) {
            if (good >> (i * 8 + r) & 1) std::memcpy(block_.shared + address[i * 8 + r], rows + r * 8, 16);
        }
    }
    if (kChecks && checking(kInitcheck) && !warp_.undefined.empty()) store_matrix_undefined(inst, good, address);
    ++pc_;
}

template <Mode M>
void Interpreter<M>::move_matrix(const Inst& inst, uint32_t mask) {
    if (!together(inst, mask)) return;
    alignas(64) uint16_t tile[64], turned[64];
    std::memcpy(tile, row32(inst.a), sizeof tile);
    for (uint32_t r = 0; r < 8; ++r) {
        for (uint32_t c = 0; c < 8; ++c) turned[c * 8 + r] = tile[r * 8 + c];
    }
    alignas(64) uint32_t lanes[kWarpLanes];
    std::memcpy(lanes, turned, sizeof lanes);
    put_lanes(row32(inst.d), lanes, mask);
    ++pc_;
}

// wmma.load and wmma.store: which lane holds what is the implementation's choice; here as in the tiles of mma. Each register is an access
// of its own, or several where the elements of a lane do not lie side by side in memory.
template <Mode M>
void Interpreter<M>::wmma_access(const Inst& inst, uint32_t mask, bool is_store) {
    if (!together(inst, mask)) return;
    const uint32_t* const list = &image_.operand_lists[inst.imm];
    const MatrixForm form = get_form(list);
    const uint32_t* operands = list + kFormWords;
    const bool is_accumulator = form.fragment == 'c';
    const Elem elem = form.fragment == 'a' ? form.a : form.fragment == 'b' ? form.b : form.c;
    const uint32_t bits = bits_of(elem), cell_bits = elem == Elem::kF64 ? 64 : 32;
    // Rows of the fragment's tiles: of A and C rows, of B columns. `along`: neighbours of such a row are neighbours in memory.
    const uint32_t rows = form.fragment == 'b' ? form.n() : form.m;
    const uint32_t depth = is_accumulator ? form.n() : form.k;
    const bool along = form.fragment == 'b' ? !form.b_row : !form.a_col;
    const uint32_t cell_elems = is_accumulator ? (elem == Elem::kF16 ? 2 : 1) : cell_bits / bits;
    const uint32_t down = rows / 8;
    const uint32_t num_real = is_accumulator ? accumulator_registers(form.m, form.n(), elem) : operand_registers(rows, form.k, elem);
    const uint32_t across = is_accumulator ? depth / 8 : depth / (4 * cell_elems);
    // Copies, since the first access may write the row that the address came from.
    alignas(64) uint64_t start[kWarpLanes];
    alignas(64) uint32_t stride[kWarpLanes];
    std::memcpy(stride, row32(inst.b), sizeof stride);
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
        start[lane] = static_cast<uint64_t>(inst.offset);
        if (inst.flags & kFlagHasBase) start[lane] += inst.flags & kFlagBase64 ? row64(inst.a)[lane] : row32(inst.a)[lane];
    }

    for (uint32_t reg = 0; reg < inst.vec; ++reg) {
        const uint32_t source = reg % num_real;
        if (is_store && reg >= num_real) break;
        uint32_t y, x, first_elem;  // of the tile; the column that lane 0 starts at
        uint32_t lane_step;
        if (is_accumulator) {
            const uint32_t per_tile = 2 / cell_elems;
            const uint32_t tile = source / per_tile;
            y = tile % down;
            x = tile / down;
            first_elem = x * 8 + source % per_tile;
            lane_step = 2;
        } else {
            y = form.fragment == 'a' ? source % down : source / across;
            x = form.fragment == 'a' ? source / down : source % across;
            first_elem = x * 4 * cell_elems;
            lane_step = cell_elems;
        }
        alignas(64) uint64_t base[kWarpLanes];
        for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
            const uint64_t outer = y * 8 + lane / 4, inner = first_elem + lane % 4 * lane_step;
            const uint64_t step = stride[lane];
            base[lane] = start[lane] + (along ? outer * step + inner : inner * step + outer) * bits / 8;
        }
        Inst part;
        part.mode = 0;
        const uint32_t pieces = along || cell_elems == 1 ? 1 : cell_elems;
        part.d = pieces > 1 ? inst.e : operands[reg];
        part.dbytes = static_cast<uint8_t>(cell_bits / 8);
        part.vec = 1;
        part.bytes = static_cast<uint8_t>(cell_elems * bits / 8 / pieces);
        alignas(64) uint32_t whole[kWarpLanes] = {};
        if (is_store && pieces > 1) std::memcpy(whole, row32(operands[reg]), sizeof whole);
        for (uint32_t piece = 0; piece < pieces; ++piece) {
            alignas(64) uint64_t address[kWarpLanes];
            for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
                address[lane] = base[lane] + static_cast<uint64_t>(piece) * stride[lane] * (bits / 8) * (pieces > 1);
            }
            const uint32_t shift = piece * bits;
            if (is_store) {
                if (pieces > 1) for_lanes(mask, [&, to = row32(part.d)](uint32_t lane) { to[lane] = whole[lane] >> shift; });
                access<true>(part, mask, address, inst.space);
            } else {
                access<false>(part, mask, address, inst.space);
                if (pieces > 1) {
                    const uint32_t keep = (1u << bits) - 1;
                    for_lanes(mask, [&, from = row32(part.d)](uint32_t lane) { whole[lane] |= (from[lane] & keep) << shift; });
                }
            }
            if (fatal_) return;
        }
        if (!is_store && pieces > 1) put_lanes(row32(operands[reg]), whole, mask);
    }
    ++pc_;
}

#define AICF_TENSOR(MODE)                                                 \
    template void Interpreter<MODE>::mma(const Inst&, uint32_t);          \
    template void Interpreter<MODE>::load_matrix(const Inst&, uint32_t);  \
    template void Interpreter<MODE>::store_matrix(const Inst&, uint32_t); \
    template void Interpreter<MODE>::move_matrix(const Inst&, uint32_t);
AICF_TENSOR(Mode::kPlain)
AICF_TENSOR(Mode::kChecked)
AICF_TENSOR(Mode::kCounted)
#undef AICF_TENSOR

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu
