// Clusters, and what belongs to a whole grid.
#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

template <Mode M>
void Interpreter<M>::map_shared([[maybe_unused]] const Inst& inst, [[maybe_unused]] uint32_t mask) {
    ++pc_;
}

template <Mode M>
void Interpreter<M>::cluster_barrier([[maybe_unused]] const Inst& inst, [[maybe_unused]] uint32_t mask) {
    ++pc_;
}

template <Mode M>
void Interpreter<M>::grid_dependency([[maybe_unused]] const Inst& inst, [[maybe_unused]] uint32_t mask) {
    ++pc_;
}

template <Mode M>
void Interpreter<M>::set_max_registers([[maybe_unused]] const Inst& inst, [[maybe_unused]] uint32_t mask) {
    ++pc_;
}

template void Interpreter<Mode::kPlain>::map_shared(const Inst&, uint32_t);
template void Interpreter<Mode::kChecked>::map_shared(const Inst&, uint32_t);
template void Interpreter<Mode::kCounted>::map_shared(const Inst&, uint32_t);
template void Interpreter<Mode::kPlain>::cluster_barrier(const Inst&, uint32_t);
template void Interpreter<Mode::kChecked>::cluster_barrier(const Inst&, uint32_t);
template void Interpreter<Mode::kCounted>::cluster_barrier(const Inst&, uint32_t);
template void Interpreter<Mode::kPlain>::grid_dependency(const Inst&, uint32_t);
template void Interpreter<Mode::kChecked>::grid_dependency(const Inst&, uint32_t);
template void Interpreter<Mode::kCounted>::grid_dependency(const Inst&, uint32_t);
template void Interpreter<Mode::kPlain>::set_max_registers(const Inst&, uint32_t);
template void Interpreter<Mode::kChecked>::set_max_registers(const Inst&, uint32_t);
template void Interpreter<Mode::kCounted>::set_max_registers(const Inst&, uint32_t);

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu
