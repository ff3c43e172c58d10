// Tensor-core instructions of a warpgroup.
#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

template <Mode M>
void Interpreter<M>::wgmma([[maybe_unused]] const Inst& inst, [[maybe_unused]] uint32_t mask) {
    ++pc_;
}

template void Interpreter<Mode::kPlain>::wgmma(const Inst&, uint32_t);
template void Interpreter<Mode::kChecked>::wgmma(const Inst&, uint32_t);
template void Interpreter<Mode::kCounted>::wgmma(const Inst&, uint32_t);

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu
