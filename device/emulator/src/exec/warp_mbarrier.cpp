// mbarrier objects.
#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

template <Mode M>
void Interpreter<M>::mbarrier([[maybe_unused]] const Inst& inst, [[maybe_unused]] uint32_t mask) {
    ++pc_;
}

template void Interpreter<Mode::kPlain>::mbarrier(const Inst&, uint32_t);
template void Interpreter<Mode::kChecked>::mbarrier(const Inst&, uint32_t);
template void Interpreter<Mode::kCounted>::mbarrier(const Inst&, uint32_t);

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu
