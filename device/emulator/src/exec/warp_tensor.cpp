// Tensor-core instructions of a warp.
#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

template <Mode M>
void Interpreter<M>::mma([[maybe_unused]] const Inst& inst, [[maybe_unused]] uint32_t mask) {
    ++pc_;
}

template <Mode M>
void Interpreter<M>::load_matrix([[maybe_unused]] const Inst& inst, [[maybe_unused]] uint32_t mask) {
    ++pc_;
}

template <Mode M>
void Interpreter<M>::store_matrix([[maybe_unused]] const Inst& inst, [[maybe_unused]] uint32_t mask) {
    ++pc_;
}

template <Mode M>
void Interpreter<M>::move_matrix([[maybe_unused]] const Inst& inst, [[maybe_unused]] uint32_t mask) {
    ++pc_;
}

template void Interpreter<Mode::kPlain>::mma(const Inst&, uint32_t);
template void Interpreter<Mode::kChecked>::mma(const Inst&, uint32_t);
template void Interpreter<Mode::kCounted>::mma(const Inst&, uint32_t);
template void Interpreter<Mode::kPlain>::load_matrix(const Inst&, uint32_t);
template void Interpreter<Mode::kChecked>::load_matrix(const Inst&, uint32_t);
template void Interpreter<Mode::kCounted>::load_matrix(const Inst&, uint32_t);
template void Interpreter<Mode::kPlain>::store_matrix(const Inst&, uint32_t);
template void Interpreter<Mode::kChecked>::store_matrix(const Inst&, uint32_t);
template void Interpreter<Mode::kCounted>::store_matrix(const Inst&, uint32_t);
template void Interpreter<Mode::kPlain>::move_matrix(const Inst&, uint32_t);
template void Interpreter<Mode::kChecked>::move_matrix(const Inst&, uint32_t);
template void Interpreter<Mode::kCounted>::move_matrix(const Inst&, uint32_t);

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu
