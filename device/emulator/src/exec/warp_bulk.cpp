// Bulk and tensor copies, and the fences of the proxies.
#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

template <Mode M>
void Interpreter<M>::bulk([[maybe_unused]] const Inst& inst, [[maybe_unused]] uint32_t mask) {
    ++pc_;
}

template <Mode M>
void Interpreter<M>::deliver_bulk([[maybe_unused]] BulkCopy& copy) {}

template <Mode M>
size_t Interpreter<M>::draw(size_t count) {
    uint64_t z = block_.random += 0x9E3779B97F4A7C15ull;  // SplitMix64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return static_cast<size_t>((z ^ (z >> 31)) % count);
}

template <Mode M>
void Interpreter<M>::fence_proxy([[maybe_unused]] const Inst& inst, [[maybe_unused]] uint32_t mask) {
    ++pc_;
}

template void Interpreter<Mode::kPlain>::bulk(const Inst&, uint32_t);
template void Interpreter<Mode::kPlain>::deliver_bulk(BulkCopy&);
template size_t Interpreter<Mode::kPlain>::draw(size_t);
template void Interpreter<Mode::kChecked>::bulk(const Inst&, uint32_t);
template void Interpreter<Mode::kChecked>::deliver_bulk(BulkCopy&);
template size_t Interpreter<Mode::kChecked>::draw(size_t);
template void Interpreter<Mode::kCounted>::bulk(const Inst&, uint32_t);
template void Interpreter<Mode::kCounted>::deliver_bulk(BulkCopy&);
template size_t Interpreter<Mode::kCounted>::draw(size_t);
template void Interpreter<Mode::kPlain>::fence_proxy(const Inst&, uint32_t);
template void Interpreter<Mode::kChecked>::fence_proxy(const Inst&, uint32_t);
template void Interpreter<Mode::kCounted>::fence_proxy(const Inst&, uint32_t);

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu
