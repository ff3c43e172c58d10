// Textures and surfaces.
#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

template <Mode M>
void Interpreter<M>::texture([[maybe_unused]] const Inst& inst, [[maybe_unused]] uint32_t mask) {
    ++pc_;
}

template void Interpreter<Mode::kPlain>::texture(const Inst&, uint32_t);
template void Interpreter<Mode::kChecked>::texture(const Inst&, uint32_t);
template void Interpreter<Mode::kCounted>::texture(const Inst&, uint32_t);

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu
