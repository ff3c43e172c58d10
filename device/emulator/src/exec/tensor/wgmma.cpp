// Tensor-core instructions of a warpgroup. PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
//
// A multiplication is the warpgroup's: each warp computes its 16 rows, and all four do so when the first of them waits with
// wgmma.wait_group, for which the others must have issued theirs. So one thread may speak for its warpgroup when it tells a producer that
// shared memory is free. An instruction that touches the registers before (which is a finding) completes its own warp's part. Registers of
// A are read at issue, those of the accumulator and shared memory at completion.
#include <algorithm>
#include <string>

#include "../warp/warp.hpp"
#include "tensor.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

namespace {

constexpr uint32_t kUnitBytes = 16;
constexpr uint32_t kRowBytes = 32;  // of K-major operands: k of every shape. B of a sparse one has rows of twice as much
constexpr uint32_t kMaxColumns = 256, kMaxDepth = 32;

// A matrix in shared memory. PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout" and "Matrix-descriptor Format".
class Matrix {
public:
    Matrix(uint64_t descriptor, uint32_t k, bool is_transposed, uint32_t row_bytes = kRowBytes)
        : start_((descriptor & 0x3FFF) << 4),
          leading_((descriptor >> 16 & 0x3FFF) << 4),
          stride_((descriptor >> 32 & 0x3FFF) << 4),
          base_(descriptor >> 49 & 7),
          is_transposed_(is_transposed),
          k_(k),
          row_bytes_(row_bytes) {
        constexpr uint32_t kWidths[] = {0, 128, 64, 32};
        width_ = kWidths[descriptor >> 62];
    }

    // Calls `each(address, row, part)` for every 16 bytes of rows [first, first + rows): of row `row` the k-th bytes from 16 * part on, or
    // when transposed, of 8 rows from `row` on the element k = part.
    template <typename F>
    void for_units(uint32_t first, uint32_t rows, F&& each) const {
        if (!is_transposed_) {
            // Where rows are longer than the swizzled ones, the rest is `leading_` bytes on.
            const uint32_t units = row_bytes_ / kUnitBytes, inside = width_ ? width_ / kUnitBytes : 1;
            for (uint32_t row = first; row < first + rows; ++row) {
                const uint64_t line = start_ + row / 8 * stride_ + row % 8 * (width_ ? width_ : kUnitBytes);
                for (uint32_t unit = 0; unit < units; ++unit)
                    each(swizzle(line + unit / inside * leading_ + unit % inside * kUnitBytes), row, unit);
            }
            return;
        }
        const uint32_t units = width_ / kUnitBytes;
        for (uint32_t row = first; row < first + rows; row += 8) {
            const uint32_t unit = row / 8;
            for (uint32_t k = 0; k < k_; ++k) {
                const uint64_t line = width_
                                          ? start_ + k / 8 * stride_ + k % 8 * width_ + unit % units * kUnitBytes + unit / units * leading_
                                          : start_ + k / 8 * leading_ + unit * stride_ + k % 8 * kUnitBytes;
                each(swizzle(line), row, k);
            }
        }
    }

    // Rows [first, first + rows) as packed rows.
    void gather(const uint8_t* shared, uint32_t first, uint32_t rows, uint8_t* to) const {
        if (!is_transposed_) {
            for_units(first, rows, [&](uint64_t address, uint32_t row, uint32_t part) {
                std::memcpy(to + (row - first) * row_bytes_ + part * kUnitBytes, shared + address, kUnitBytes);
            });
            return;
        }
        for_units(first, rows, [&](uint64_t address, uint32_t row, uint32_t k) {
            for (uint32_t i = 0; i < 8; ++i) std::memcpy(to + (row - first + i) * row_bytes_ + k * 2, shared + address + i * 2, 2);
        });
    }

private:
    // Bits 4 to 6 of an address are changed by bits 7 to 9, counted from where the pattern starts.
    uint64_t swizzle(uint64_t address) const {
        if (width_ == 0) return address;
        const uint64_t mask = width_ / kUnitBytes - 1;
        return address ^ (((address >> 7) - base_) & mask) << 4;
    }

    uint64_t start_, leading_, stride_, base_;
    uint32_t width_;
    bool is_transposed_;
    uint32_t k_, row_bytes_;
};

Matrix matrix_a(const MatrixForm& form, const PendingWgmma& op) { return Matrix(op.a, form.sparse ? form.k / 2 : form.k, form.a_col); }
Matrix matrix_b(const MatrixForm& form, const PendingWgmma& op) {
    return Matrix(op.b, form.k, form.b_row, form.sparse ? 2 * kRowBytes : kRowBytes);
}

TensorType counted_as(Elem elem) {
    switch (elem) {
        case Elem::kF16: return TensorType::kF16;
        case Elem::kBF16: return TensorType::kBF16;
        case Elem::kTF32: return TensorType::kTF32;
        case Elem::kB1: return TensorType::kB1;
        case Elem::kS8:
        case Elem::kU8: return TensorType::kI8;
        default: return TensorType::kF8;
    }
}

uint32_t count_accumulators(const MatrixForm& form) { return accumulator_registers(16, form.n(), form.d); }

// Registers of an accumulator, which lies as that of a 16 x n mma.
void load_accumulator(const MatrixForm& form, const PendingWgmma& op, uint32_t* cells) {
    const uint32_t* operands = op.list + kFormWords;
    const uint32_t n = form.n();
    const auto row = [&](uint32_t i) { return reinterpret_cast<const uint32_t*>(op.rows + (operands[i] & 0x3FFFFFFFu)); };
    for (uint32_t x = 0; x < n / 8; ++x) {
        for (uint32_t y = 0; y < 2; ++y) {
            uint32_t* at = cells + y * 8 * n + x * 8;
            if (form.d == Elem::kF16) {
                const uint32_t* both = row(2 * x + y);
                for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
                    at[lane / 4 * n + lane % 4 * 2] = both[lane] & 0xFFFF;
                    at[lane / 4 * n + lane % 4 * 2 + 1] = both[lane] >> 16;
                }
            } else {
                const uint32_t* left = row(4 * x + 2 * y);
                const uint32_t* right = row(4 * x + 2 * y + 1);
                for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
                    at[lane / 4 * n + lane % 4 * 2] = left[lane];
                    at[lane / 4 * n + lane % 4 * 2 + 1] = right[lane];
                }
            }
        }
    }
}

void store_accumulator(const MatrixForm& form, const PendingWgmma& op, const uint32_t* cells) {
    const uint32_t* operands = op.list + kFormWords;
    const uint32_t n = form.n();
    const auto put = [&](uint32_t i, uint32_t lane, uint32_t value) {
        if (op.mask >> lane & 1) reinterpret_cast<uint32_t*>(op.rows + (operands[i] & 0x3FFFFFFFu))[lane] = value;
    };
    for (uint32_t x = 0; x < n / 8; ++x) {
        for (uint32_t y = 0; y < 2; ++y) {
            const uint32_t* at = cells + y * 8 * n + x * 8;
            for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
                const uint32_t left = at[lane / 4 * n + lane % 4 * 2], right = at[lane / 4 * n + lane % 4 * 2 + 1];
                if (form.d == Elem::kF16) {
                    put(2 * x + y, lane, (left & 0xFFFF) | right << 16);
                } else {
                    put(4 * x + 2 * y, lane, left);
                    put(4 * x + 2 * y + 1, lane, right);
                }
            }
        }
    }
}

// One multiplication of form.m rows, 16 at most: `cells` is the accumulator, in and out.
void multiply_rows(const MatrixForm& form, const uint8_t* a, const uint8_t* b, uint32_t* cells) {
    const uint32_t m = form.m, n = form.n(), k = form.k;
    if (is_integer(form.a)) return multiply(form, a, b, cells, cells);
    alignas(64) static thread_local float left[16 * kMaxDepth], right[kMaxDepth * kMaxColumns];
    alignas(64) static thread_local int32_t left_exponent[16 * kMaxDepth], right_exponent[kMaxDepth * kMaxColumns];
    unpack_floats(form.a, a, m * k, left, left_exponent, 1);
    unpack_columns(form.b, b, n, k, right, right_exponent);
    if (form.negate_a != form.negate_b) {
        for (uint32_t i = 0; i < m * k; ++i) left[i] = -left[i];
    }
    // The 8-bit formats have a narrower adder here.
    const Accumulation rule = is_float8(form.a) ? Accumulation{13, 13} : Accumulation{};
    const bool is_f16 = form.d == Elem::kF16;
    multiply_floats({m, n, k, left, left_exponent, right, right_exponent, is_f16, is_f16, rule}, cells, cells);
}

// The same where A is sparse: each of its rows multiplies other rows of B.
void multiply_sparse_rows(const MatrixForm& form, const uint8_t* a, const uint8_t* b, const uint32_t* metadata, uint32_t* cells) {
    alignas(64) static thread_local uint8_t chosen[kMaxColumns * kRowBytes];
    SparseUnits units;
    find_sparse_units(form, metadata, units);
    MatrixForm part = form;
    part.m = 1;
    part.k = form.k / 2;
    for (uint32_t row = 0; row < 16; ++row) {
        gather_sparse(form, units[row], b, chosen);
        multiply_rows(part, a + row * kRowBytes, chosen, cells + row * form.n());
    }
}

}  // namespace

template <Mode M>
void Interpreter<M>::wgmma(const Inst& inst, uint32_t mask) {
    switch (static_cast<WgmmaMode>(inst.mode)) {
        case WgmmaMode::kMultiply: return wgmma_issue(inst, mask);
        case WgmmaMode::kTouch: return wgmma_touch(inst, mask);
        default: break;
    }
    const bool forced = warp_.forced_pc == pc_;
    if (!together(inst, mask)) return;
    WarpWgmma& state = warp_.wgmma;
    switch (static_cast<WgmmaMode>(inst.mode)) {
        case WgmmaMode::kFence:
            state.fenced = true;
            std::fill(state.dirty.begin(), state.dirty.end(), 0);
            break;
        case WgmmaMode::kCommit: ++state.commits; break;
        default: return wgmma_wait(inst, mask, forced);
    }
    ++pc_;
}

// `forced`: all other threads wait too, so that what is not issued yet never will be.
template <Mode M>
void Interpreter<M>::wgmma_wait(const Inst& inst, uint32_t mask, bool forced) {
    WarpWgmma& state = warp_.wgmma;
    const uint32_t left = static_cast<uint32_t>(inst.offset);
    size_t ready = 0;
    while (ready < state.pending.size() && state.pending[ready].group + left < state.commits) ++ready;
    if constexpr (kCount) count().wgmma_waits += ready != 0;
    const uint32_t first = warp_.id / 4 * 4;
    if (ready != 0 && first + 4 <= block_.num_warps) {
        const uint32_t last = state.pending[ready - 1].serial;
        bool lacks = false;
        for (uint32_t i = first; i < first + 4; ++i) lacks |= block_.warps[i].live != 0 && block_.warps[i].wgmma.issued <= last;
        if (lacks && !forced) {
            push_entry(pc_, mask, EntryState::kWarpgroup);
            mask_ &= ~mask;
            if (mask_) {
                ++pc_;
                return update_merge();
            }
            drop(frame_);
            pick();
            return;
        }
        for (uint32_t i = first; i < first + 4; ++i) {
            const std::vector<PendingWgmma>& pending = block_.warps[i].wgmma.pending;
            size_t count = 0;
            while (count < pending.size() && pending[count].serial <= last) ++count;
            carry_out_wgmma(block_.warps[i], count);
        }
        if (checking(kRacecheck)) join_warpgroup(last, mask);
    }
    finish_wgmma(ready);
    ++pc_;
}

// The lanes know now that the warpgroup's multiplications up to `last` have read what they read.
template <Mode M>
void Interpreter<M>::join_warpgroup(uint32_t last, uint32_t lanes) {
    const uint32_t first = warp_.id / 4 * 4;
    for (uint32_t i = first; i < first + 4; ++i) {
        for (const auto& [serial, agent] : block_.warps[i].wgmma.readers) {
            if (serial > last) break;
            if (serial >= warp_.wgmma.waited) agent_join(Agent{agent}, lanes);
        }
    }
    warp_.wgmma.waited = last + 1;
    uint32_t least = ~0u;
    for (uint32_t i = first; i < first + 4; ++i)
        if (block_.warps[i].live) least = std::min(least, block_.warps[i].wgmma.waited);
    for (uint32_t i = first; i < first + 4; ++i) {
        auto& readers = block_.warps[i].wgmma.readers;
        while (!readers.empty() && readers.front().first < least) readers.pop_front();
    }
}

// After an issue or the end of this warp: others of the warpgroup that wait look again.
template <Mode M>
void Interpreter<M>::wake_warpgroup() {
    const uint32_t first = warp_.id / 4 * 4;
    for (uint32_t i = first; i < std::min(first + 4, block_.num_warps); ++i) {
        for (Entry& entry : block_.warps[i].entries) {
            if (entry.state != EntryState::kWarpgroup) continue;
            entry.state = EntryState::kRunnable;
            ++worker_.progress;
        }
    }
}

template <Mode M>
void Interpreter<M>::wgmma_issue(const Inst& inst, uint32_t mask) {
    if (!together(inst, mask)) return;
    WarpWgmma& state = warp_.wgmma;
    PendingWgmma op;
    op.pc = pc_;
    op.group = state.commits;
    op.serial = state.issued++;
    op.mask = mask;
    op.list = &image_.operand_lists[inst.imm];
    op.rows = bases_[kBase32];
    const MatrixForm form = get_form(op.list);
    const uint32_t* operands = op.list + kFormWords;
    const uint32_t num_d = count_accumulators(form), lane = std::countr_zero(mask);
    op.accumulates = predicate(inst.pa) >> lane & 1;
    if (form.a_in_registers) {
        for (uint32_t i = 0; i < 4; ++i) std::memcpy(op.a_fragment[i], row32(operands[num_d + i]), kRow32Bytes);
    } else {
        op.a = row64(inst.a)[lane];
    }
    op.b = row64(inst.b)[lane];
    if (form.sparse) std::memcpy(op.metadata, row32(operands[num_d + (form.a_in_registers ? 4 : 0)]), kRow32Bytes);
    count_tensor(counted_as(form.a), 2ull * 16 * form.n() * form.k / (form.sparse ? 2 : 1));
    if (checking(kSynccheck)) check_wgmma_order(form, operands, op.serial);

    // What it reads: of A this warp's rows, of B everything.
    op.is_valid = true;
    Agent agent;
    if (checking(kRacecheck)) agent = agent_start(lane, Proxy::kAsync);
    op.agent = agent.id;
    const auto visit = [&](const Matrix& matrix, uint32_t first, uint32_t rows) {
        bool inside = true, initialized = true;
        uint64_t bad = 0, waiting = ~0ull;
        matrix.for_units(first, rows, [&](uint64_t address, uint32_t, uint32_t) {
            if (!block_.has_shared(address, kUnitBytes)) {
                if (inside) bad = address;
                inside = false;
                return;
            }
            if constexpr (kChecks) {
                if (checking(kInitcheck)) {
                    constexpr uint64_t kWritten = 0x0101010101010101, kBits = 0x0303030303030303;
                    uint64_t bytes[2];
                    std::memcpy(bytes, block_.shared_state + address, kUnitBytes);
                    initialized &= (((bytes[0] ^ kWritten) | (bytes[1] ^ kWritten)) & kBits) == 0;
                }
                // Two units side by side are one access.
                if (checking(kRacecheck)) {
                    if (waiting != ~0ull && (waiting ^ address) == kUnitBytes) {
                        agent_access(agent, MemSpace::kShared, &block_, std::min(waiting, address), 2 * kUnitBytes, false);
                        waiting = ~0ull;
                    } else {
                        if (waiting != ~0ull) agent_access(agent, MemSpace::kShared, &block_, waiting, kUnitBytes, false);
                        waiting = address;
                    }
                }
            }
        });
        if (waiting != ~0ull && checking(kRacecheck)) agent_access(agent, MemSpace::kShared, &block_, waiting, kUnitBytes, false);
        uint64_t at[kWarpLanes] = {};
        if (!inside) {
            at[lane] = bad;
            check_shared(1u << lane, at, kUnitBytes, false, false);
            op.is_valid = false;
        } else if (!initialized && checking(kInitcheck)) {
            matrix.for_units(first, rows, [&](uint64_t address, uint32_t, uint32_t) {
                at[lane] = address;
                check_shared_init(1u << lane, at, kUnitBytes, address, address);
            });
        }
    };
    if (!form.a_in_registers) visit(matrix_a(form, op), warp_.id % 4 * 16, 16);
    visit(matrix_b(form, op), 0, form.n());
    if (fatal_) return;
    if (op.agent) state.readers.emplace_back(op.serial, op.agent);
    state.pending.push_back(op);
    wake_warpgroup();
    ++pc_;
}

// Fences, and that the warps of a warpgroup execute the same.
template <Mode M>
void Interpreter<M>::check_wgmma_order(const MatrixForm& form, const uint32_t* operands, uint32_t mine) {
    WarpWgmma& state = warp_.wgmma;
    const uint32_t lane = std::countr_zero(mask_);
    const auto report = [&](Finding finding, const std::string& text) { report_event(worker_, block_, warp_, pc_, lane, finding, text); };
    const auto is_dirty = [&](uint32_t operand) {
        const size_t index = static_cast<size_t>(row(operand) - warp_.rows32) / kRow32Bytes;
        return index / 64 < state.dirty.size() && state.dirty[index / 64] >> (index % 64) & 1;
    };
    if (!state.fenced) {
        report(Finding::kWgmmaMissingFence, "no wgmma.fence was executed before the first wgmma.mma_async");
        state.fenced = true;
    } else if (!state.dirty.empty()) {
        bool found = false;
        const uint32_t num = count_accumulators(form) + (form.a_in_registers ? 4 : 0);
        for (uint32_t i = 0; i < num && !found; ++i) found = is_dirty(operands[i]);
        if (found) report(Finding::kWgmmaMissingFence, "a register of it was written since the last wgmma.fence");
        if (found) std::fill(state.dirty.begin(), state.dirty.end(), 0);
    }
    const uint32_t group = warp_.id / 4;
    if (group * 4 + 4 > block_.num_warps) {
        report(Finding::kWgmmaWarpgroup, "the block has no four warps from warp " + std::to_string(group * 4) + " on");
        return;
    }
    if (block_.wgmma_logs.size() <= group) block_.wgmma_logs.resize(block_.num_warps / 4);
    WarpgroupLog& log = block_.wgmma_logs[group];
    if (mine - log.first >= log.at.size()) {
        log.at.push_back(pc_);
        return;
    }
    if (log.at[mine - log.first] != pc_) {
        report(Finding::kWgmmaWarpgroup, "another warp of the warpgroup executed " +
                                             block_.launch->program->module.source_of(image_.info[log.at[mine - log.first]].where) +
                                             " (PTX line " + std::to_string(image_.info[log.at[mine - log.first]].where.ptx_line) +
                                             ") in its place");
    }
    uint32_t least = ~0u;
    for (uint32_t i = 0; i < 4; ++i) least = std::min(least, block_.warps[group * 4 + i].wgmma.issued);
    if (least - log.first >= 64) {
        log.at.erase(log.at.begin(), log.at.begin() + (least - log.first));
        log.first = least;
    }
}

// A warp whose threads have all exited: the others of its warpgroup should not have executed more than it.
template <Mode M>
void Interpreter<M>::check_warpgroup_after_exit() {
    const uint32_t group = warp_.id / 4;
    if (block_.wgmma_logs.size() <= group) return;
    const Warp* first = &block_.warps[group * 4];
    uint32_t most = 0, least = ~0u;
    for (uint32_t i = 0; i < 4; ++i) {
        if (first[i].live) return;
        most = std::max(most, first[i].wgmma.issued);
        least = std::min(least, first[i].wgmma.issued);
    }
    if (most == least) return;
    const uint32_t here = pc_;
    const WarpgroupLog& log = block_.wgmma_logs[group];
    if (least >= log.first && least - log.first < log.at.size()) pc_ = log.at[least - log.first];
    for (uint32_t i = 0; i < 4; ++i) {
        if (first[i].wgmma.issued != least) continue;
        report_event(
            worker_, block_, block_.warps[group * 4 + i], pc_, 0, Finding::kWgmmaWarpgroup,
            "this warp exited after " + std::to_string(least) + " of them, another one of the warpgroup executed " + std::to_string(most));
        break;
    }
    pc_ = here;
}

// Put by the decoder before an instruction that touches registers of a wgmma.
template <Mode M>
void Interpreter<M>::wgmma_touch(const Inst& inst, uint32_t mask) {
    WarpWgmma& state = warp_.wgmma;
    const bool is_move = inst.vec != 0;  // compilers copy accumulators: no hazard of the program's
    const uint32_t count = inst.bytes, written = inst.e;
    const auto row_index = [&](const uint8_t* at) { return static_cast<size_t>(at - warp_.rows32) / kRow32Bytes; };
    if (!state.pending.empty()) {
        size_t needed = 0;
        const PendingWgmma* hit = nullptr;
        bool hits_accumulator = false;
        for (size_t i = 0; i < state.pending.size(); ++i) {
            const PendingWgmma& op = state.pending[i];
            const MatrixForm form = get_form(op.list);
            const uint32_t num_d = count_accumulators(form), num = num_d + (form.a_in_registers ? 4 : 0);
            for (uint32_t k = 0; k < num; ++k) {
                const uint8_t* reg = op.rows + (op.list[kFormWords + k] & 0x3FFFFFFFu);
                for (uint32_t t = 0; t < count; ++t) {
                    if (row(listed(inst, t)) != reg) continue;
                    if (k >= num_d && !(written >> t & 1)) continue;  // A's registers may be read
                    if (k < num_d) needed = i + 1;
                    if (!hit) hits_accumulator = k < num_d;
                    if (!hit) hit = &op;
                }
            }
        }
        if (hit && !is_move && checking(kSynccheck)) {
            const ptx::Location& where = image_.info[hit->pc].where;
            const std::string source = block_.launch->program->module.source_of(where);
            report_event(worker_, block_, warp_, pc_, std::countr_zero(mask), Finding::kWgmmaRegisterHazard,
                         std::string(hits_accumulator ? "an accumulator" : "a register of A") + " of the wgmma.mma_async at " +
                             (source.empty() ? "" : source + ", ") + "PTX line " + std::to_string(where.ptx_line) +
                             " is touched, and no wgmma.wait_group has waited for it");
        }
        finish_wgmma(needed);
    }
    if (!is_move && written && checking(kSynccheck)) {
        for (uint32_t t = 0; t < count; ++t) {
            if (!(written >> t & 1)) continue;
            const size_t index = row_index(row(listed(inst, t)));
            if (state.dirty.size() <= index / 64) state.dirty.resize(index / 64 + 1);
            state.dirty[index / 64] |= 1ull << (index % 64);
        }
    }
    ++pc_;
}

// Ends the warp's first `count` multiplications.
template <Mode M>
void Interpreter<M>::finish_wgmma(size_t count) {
    if (count == 0) return;
    carry_out_wgmma(warp_, count);
    std::vector<PendingWgmma>& pending = warp_.wgmma.pending;
    for (size_t i = 0; i < count; ++i)
        if (pending[i].agent) agent_join(Agent{pending[i].agent}, pending[i].mask);
    pending.erase(pending.begin(), pending.begin() + static_cast<ptrdiff_t>(count));
}

// Carries out the first `count` multiplications that a warp has under way, in order, but for those that are done. Those in a row that have
// one accumulator share its loading.
template <Mode M>
void Interpreter<M>::carry_out_wgmma(Warp& warp, size_t count) {
    std::vector<PendingWgmma>& pending = warp.wgmma.pending;
    size_t first = 0;
    while (first < count && pending[first].is_done) ++first;
    alignas(64) static thread_local uint32_t cells[16 * kMaxColumns];
    alignas(64) static thread_local uint8_t a[16 * kRowBytes], b[kMaxColumns * 2 * kRowBytes];
    const auto same_accumulator = [](const PendingWgmma& x, const PendingWgmma& y) {
        const MatrixForm left = get_form(x.list), right = get_form(y.list);
        if (left.n8 != right.n8 || left.d != right.d || x.rows != y.rows) return false;
        return std::equal(x.list + kFormWords, x.list + kFormWords + count_accumulators(left), y.list + kFormWords);
    };
    for (size_t i = first; i < count; ++i) {
        PendingWgmma& op = pending[i];
        op.is_done = true;
        const MatrixForm form = get_form(op.list);
        if (i == first || !same_accumulator(pending[i - 1], op)) load_accumulator(form, op, cells);
        if (!op.accumulates) std::memset(cells, 0, 16 * form.n() * 4);
        if (op.is_valid) {
            if (form.a_in_registers) {
                for (uint32_t reg = 0; reg < 4; ++reg) {
                    for (uint32_t r = 0; r < 8; ++r)
                        std::memcpy(a + (reg % 2 * 8 + r) * kRowBytes + reg / 2 * 16, op.a_fragment[reg] + r * 4, 16);
                }
            } else {
                matrix_a(form, op).gather(block_.shared, warp.id % 4 * 16, 16, a);
            }
            matrix_b(form, op).gather(block_.shared, 0, form.n(), b);
            MatrixForm rows = form;
            rows.m = 16;
            if (form.sparse)
                multiply_sparse_rows(rows, a, b, op.metadata, cells);
            else
                multiply_rows(rows, a, b, cells);
        }
        if (i + 1 == count || !same_accumulator(op, pending[i + 1])) store_accumulator(form, op, cells);
    }
}

#define AICF_WGMMA(MODE)                                           \
    template void Interpreter<MODE>::wgmma(const Inst&, uint32_t); \
    template void Interpreter<MODE>::check_warpgroup_after_exit(); \
    template void Interpreter<MODE>::wake_warpgroup();             \
    template void Interpreter<MODE>::finish_wgmma(size_t);
AICF_WGMMA(Mode::kPlain)
AICF_WGMMA(Mode::kChecked)
AICF_WGMMA(Mode::kCounted)
#undef AICF_WGMMA

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu
