// Order of memory accesses: what synchronises with what.
#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

template <Mode M>
uint64_t Interpreter<M>::order_object(OrderKind kind, const Block& owner, uint64_t address) const {
    return static_cast<uint64_t>(kind) << 60 | (owner.linear << 24 ^ address);
}

template <Mode M>
void Interpreter<M>::release_to(uint32_t, uint64_t) {}

template <Mode M>
void Interpreter<M>::acquire_from(uint32_t, uint64_t) {}

template <Mode M>
Agent Interpreter<M>::agent_start(uint32_t, Proxy) {
    return {};
}

template <Mode M>
void Interpreter<M>::agent_access(Agent, MemSpace, Block*, uint64_t, uint32_t, bool) {}

template <Mode M>
void Interpreter<M>::agent_release(Agent, uint64_t) {}

template <Mode M>
void Interpreter<M>::agent_join(Agent, uint32_t) {}

template <Mode M>
void Interpreter<M>::proxy_fence(uint32_t, ProxyFence) {}

template class Interpreter<Mode::kPlain>;
template class Interpreter<Mode::kChecked>;
template class Interpreter<Mode::kCounted>;

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu
