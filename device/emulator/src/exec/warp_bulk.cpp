// Bulk and tensor copies, and the fences of the proxies.
#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

template <Mode M>
void Interpreter<M>::bulk([[maybe_unused]] const Inst& inst, [[maybe_unused]] uint32_t mask) {
    ++pc_;
}

template <Mode M>
void Interpreter<M>::fence_proxy([[maybe_unused]] const Inst& inst, [[maybe_unused]] uint32_t mask) {
    ++pc_;
}

template void Interpreter<Mode::kPlain>::bulk(const Inst&, uint32_t);
template void Interpreter<Mode::kChecked>::bulk(const Inst&, uint32_t);
template void Interpreter<Mode::kCounted>::bulk(const Inst&, uint32_t);
template void Interpreter<Mode::kPlain>::fence_proxy(const Inst&, uint32_t);
template void Interpreter<Mode::kChecked>::fence_proxy(const Inst&, uint32_t);
template void Interpreter<Mode::kCounted>::fence_proxy(const Inst&, uint32_t);

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu
