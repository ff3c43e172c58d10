#include "conditional.hpp"

#include <mutex>
#include <unordered_map>

namespace aicf::emu {
namespace {

struct Conditionals {
    std::mutex mutex;
    std::unordered_map<uint64_t, uint32_t> values;
    uint64_t next = 1;
};

Conditionals& conditionals() {
    static auto* all = new Conditionals;
    return *all;
}

}  // namespace

bool set_conditional(uint64_t handle, uint32_t value) {
    Conditionals& all = conditionals();
    std::lock_guard lock(all.mutex);
    const auto found = all.values.find(handle);
    if (found == all.values.end()) return false;
    found->second = value;
    return true;
}

uint64_t add_conditional(uint32_t value) {
    Conditionals& all = conditionals();
    std::lock_guard lock(all.mutex);
    all.values.emplace(all.next, value);
    return all.next++;
}

void remove_conditional(uint64_t handle) {
    Conditionals& all = conditionals();
    std::lock_guard lock(all.mutex);
    all.values.erase(handle);
}

uint32_t conditional_value(uint64_t handle) {
    Conditionals& all = conditionals();
    std::lock_guard lock(all.mutex);
    const auto found = all.values.find(handle);
    return found == all.values.end() ? 0 : found->second;
}

}  // namespace aicf::emu
