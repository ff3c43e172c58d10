#include "device_memory.hpp"

#include "footprint.hpp"
#include "race_shadow.hpp"
#include "round_up.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <shared_mutex>
#include <stdexcept>

namespace aicf::emu {
namespace {

constexpr uint64_t kAlignBytes = 256;
constexpr uint64_t kHeapHeaderBytes = 16;  // that an allocation of a kernel costs beside its size
constexpr uint64_t kRedZoneBytes = 256;               // on both sides of every allocation
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kPoisonLimitBytes = 4ull << 20;    // larger allocations stay sparse, beyond their
constexpr uint64_t kSparsePoisonBytes = 256ull << 10;  // first bytes
constexpr uint64_t kPunchLimitBytes = 1ull << 20;     // freed memory above this goes back to the host
constexpr uint64_t kQuarantineBytes = 256ull << 20;   // address space that freed allocations may hold back
constexpr size_t kQuarantineCount = 4096;
constexpr int kPoison = 0xCB;

}  // namespace

struct DeviceMemory::State {
    struct Block {
        Allocation allocation;
        uint64_t begin = 0, end = 0;  // with red zones and rounding
    };

    int descriptor = -1;
    void* user = nullptr;
    void* alias = nullptr;
    uint64_t init_map_bytes = 0;
    uint64_t bump = 0;  // first address never handed out
    std::vector<uint64_t> used_bytes;  // by device
    std::map<uint64_t, Allocation> host_ranges;  // by address
    uint64_t serial = 0;
    std::atomic<uint64_t> generation{1};
    mutable std::shared_mutex mutex;
    std::map<uint64_t, Block> blocks;         // live and quarantined, by begin
    std::map<uint64_t, uint64_t> free_spans;  // begin -> end, merged
    std::deque<uint64_t> quarantine;          // begins, oldest first
    uint64_t quarantine_bytes = 0;
    std::unique_ptr<RaceShadow> race_shadow;

    std::map<uint64_t, Block>::const_iterator block_at(uint64_t address) const {
        auto it = blocks.upper_bound(address);
        if (it == blocks.begin()) return blocks.end();
        --it;
        return address < it->second.end ? it : blocks.end();
    }

    const Allocation* host_range_at(uint64_t address) const {
        auto it = host_ranges.upper_bound(address);
        if (it == host_ranges.begin()) return nullptr;
        const Allocation& range = std::prev(it)->second;
        return address - range.address < range.size_bytes ? &range : nullptr;
    }

    uint64_t heap_limit = 8 << 20, heap_used = 0, heap_end = 0;

    void give_back(uint64_t begin, uint64_t end) {
        auto next = free_spans.lower_bound(begin);
        if (next != free_spans.end() && next->first == end) {
            end = next->second;
            next = free_spans.erase(next);
        }
        if (next != free_spans.begin()) {
            auto previous = std::prev(next);
            if (previous->second == begin) {
                begin = previous->first;
                free_spans.erase(previous);
            }
        }
        if (end == bump)
            bump = begin;  // what scans all that was handed out need not go through what was huge once
        else
            free_spans.emplace(begin, end);
    }

    void expire_quarantine(size_t keep_count, uint64_t keep_bytes) {
        while (!quarantine.empty() && (quarantine.size() > keep_count || quarantine_bytes > keep_bytes)) {
            auto it = blocks.find(quarantine.front());
            quarantine.pop_front();
            const uint64_t begin = it->second.begin, end = it->second.end;
            quarantine_bytes -= end - begin;
            blocks.erase(it);
            give_back(begin, end);
        }
    }

    // A span of `bytes` whose begin is a multiple of `align`: reused when one fits, else fresh; 0 when there is none.
    uint64_t take(uint64_t bytes, uint64_t align, uint64_t limit) {
        for (auto it = free_spans.begin(); it != free_spans.end(); ++it) {
            const uint64_t begin = round_up(it->first, align);
            if (begin + bytes > it->second || begin + bytes < begin) continue;
            const uint64_t span_begin = it->first, span_end = it->second;
            free_spans.erase(it);
            if (span_begin < begin) free_spans.emplace(span_begin, begin);
            if (begin + bytes < span_end) free_spans.emplace(begin + bytes, span_end);
            return begin;
        }
        const uint64_t begin = round_up(bump, align);
        if (begin + bytes > limit || begin + bytes < begin) return 0;
        if (bump < begin) give_back(bump, begin);
        bump = begin + bytes;
        return begin;
    }
};

DeviceMemory::DeviceMemory(uint64_t device_bytes, uint32_t num_devices)
    : capacity_(num_devices * round_up(device_bytes, 1ull << 21)), device_bytes_(capacity_ / num_devices), state_(new State) {
    State& s = *state_;
    s.used_bytes.assign(num_devices, 0);
    const auto fail = [&](const char* what) {
        const std::string message = std::string("cannot reserve the emulated device's memory: ") + what + " of " +
                                    std::to_string(capacity_ >> 20) + " MiB failed: " + std::strerror(errno) + "; lower memory_bytes";
        if (s.user) munmap(s.user, capacity_);
        if (s.alias) munmap(s.alias, capacity_);
        if (s.descriptor >= 0) close(s.descriptor);
        delete state_;
        throw std::runtime_error(message);
    };
    s.descriptor = memfd_create("aicf-device-memory", MFD_CLOEXEC);
    if (s.descriptor < 0) fail("memfd_create");
    if (ftruncate(s.descriptor, static_cast<off_t>(capacity_)) != 0) fail("ftruncate");
    void* user = mmap(nullptr, capacity_, PROT_NONE, MAP_SHARED | MAP_NORESERVE, s.descriptor, 0);
    if (user == MAP_FAILED) fail("mmap of the device range");
    s.user = user;
    void* alias = mmap(nullptr, capacity_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s.descriptor, 0);
    if (alias == MAP_FAILED) fail("mmap of the alias");
    s.alias = alias;
    s.init_map_bytes = capacity_ / 8;
    void* bits = mmap(nullptr, s.init_map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bits == MAP_FAILED) fail("mmap of the initialisation bits");
    madvise(user, capacity_, MADV_DONTFORK);
    madvise(alias, capacity_, MADV_DONTDUMP);
    init_bits_ = static_cast<uint8_t*>(bits);
    base_ = reinterpret_cast<uint64_t>(user);
    delta_ = reinterpret_cast<uint64_t>(alias) - base_;
    s.bump = base_;
}

DeviceMemory::~DeviceMemory() {
    munmap(state_->user, capacity_);
    munmap(state_->alias, capacity_);
    munmap(init_bits_, state_->init_map_bytes);
    delete footprints_;
    close(state_->descriptor);
    delete state_;
}

void DeviceMemory::fill_fresh(uint64_t address, uint64_t bytes) {
    if (!zero_fresh_) {
        std::memset(alias(address), kPoison, bytes <= kPoisonLimitBytes ? bytes : kSparsePoisonBytes);
        return;
    }
    // Whole pages of a large allocation are given back, and come again as zeros where they are used.
    const uint64_t end = address + bytes, first = round_up(address, kPageBytes), last = end / kPageBytes * kPageBytes;
    if (bytes <= kPoisonLimitBytes || madvise(alias(first), last - first, MADV_REMOVE) != 0) {
        std::memset(alias(address), 0, bytes);
        return;
    }
    std::memset(alias(address), 0, first - address);
    std::memset(alias(last), 0, end - last);
}

uint64_t DeviceMemory::allocate(uint64_t size_bytes, MemoryKind kind, std::string label) {
    State& s = *state_;
    std::unique_lock lock(s.mutex);
    uint64_t& used = s.used_bytes[current_device_];
    if (size_bytes > device_bytes_ - std::min(used, device_bytes_)) return 0;
    const bool pages = is_host_visible(kind);
    has_host_visible_ = has_host_visible_ || pages;
    const uint64_t payload = round_up(std::max<uint64_t>(size_bytes, 1), pages ? kPageBytes : kAlignBytes);
    const uint64_t front = pages ? kPageBytes : kRedZoneBytes;
    const uint64_t total = front + payload + front;
    const uint64_t align = pages ? kPageBytes : kAlignBytes;
    const bool in_heap = kind == MemoryKind::kHeap;
    if (in_heap && s.heap_used + size_bytes + kHeapHeaderBytes > s.heap_limit) return 0;
    uint64_t begin = s.take(total, align, in_heap ? s.heap_end : base_ + capacity_);
    if (!begin && !in_heap) {  // what is in quarantine may not go while a kernel runs
        s.expire_quarantine(0, 0);
        begin = s.take(total, align, base_ + capacity_);
    }
    if (!begin) return 0;

    State::Block block;
    block.begin = begin;
    block.end = begin + total;
    block.allocation = {begin + front, size_bytes, ++s.serial, kind, true, std::move(label), 0, static_cast<int>(current_device_)};
    const uint64_t address = block.allocation.address;
    s.blocks.emplace(begin, std::move(block));
    used += size_bytes;
    if (in_heap) s.heap_used += size_bytes + kHeapHeaderBytes;

    forget(begin - base_, begin - base_ + total);
    if (pages) {
        mprotect(reinterpret_cast<void*>(address), payload, PROT_READ | PROT_WRITE);
    } else {
        fill_fresh(address, payload);
    }
    s.generation.fetch_add(1, std::memory_order_release);
    lock.unlock();
    // The host writes to these pages unseen, so nothing can be said about them.
    if (pages) mark_initialized(address, size_bytes);
    return address;
}

FreeResult DeviceMemory::release(uint64_t address, bool in_kernel) {
    State& s = *state_;
    std::unique_lock lock(s.mutex);
    auto found = s.block_at(address);
    if (found == s.blocks.end()) return FreeResult::kNotAllocated;
    State::Block& block = s.blocks.find(found->first)->second;
    Allocation& allocation = block.allocation;
    if (allocation.address != address) {
        const bool inside = allocation.live && address > allocation.address && address < allocation.address + allocation.size_bytes;
        return inside ? FreeResult::kInsidePointer : FreeResult::kNotAllocated;
    }
    if (in_kernel != (allocation.kind == MemoryKind::kHeap)) return FreeResult::kNotAllocated;
    if (!allocation.live) return FreeResult::kDoubleFree;
    allocation.live = false;
    s.used_bytes[static_cast<size_t>(allocation.device)] -= allocation.size_bytes;
    if (in_kernel) s.heap_used -= allocation.size_bytes + kHeapHeaderBytes;
    const uint64_t payload = round_up(std::max<uint64_t>(allocation.size_bytes, 1), kAlignBytes);
    if (is_host_visible(allocation.kind)) {
        mprotect(reinterpret_cast<void*>(address), round_up(payload, kPageBytes), PROT_NONE);
    }
    if (payload >= kPunchLimitBytes) {
        const uint64_t first = round_up(address - base_, kPageBytes);
        const uint64_t last = (address - base_ + payload) / kPageBytes * kPageBytes;
        fallocate(s.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first), static_cast<off_t>(last - first));
    }
    s.quarantine.push_back(block.begin);
    s.quarantine_bytes += block.end - block.begin;
    if (!in_kernel) s.expire_quarantine(kQuarantineCount, kQuarantineBytes);
    s.generation.fetch_add(1, std::memory_order_release);
    return FreeResult::kOk;
}

void DeviceMemory::open_heap() {
    // Each allocation takes at least kAlignBytes and two red zones, however small it is.
    constexpr uint64_t kRoomForSmallOnes = 64;
    std::unique_lock lock(state_->mutex);
    const uint64_t end = base_ + capacity_;
    const uint64_t room = (end - state_->bump) / 2;
    state_->heap_end = state_->bump + std::min(room, state_->heap_limit * kRoomForSmallOnes);
}

void DeviceMemory::set_heap_limit(uint64_t bytes) {
    std::unique_lock lock(state_->mutex);
    state_->heap_limit = bytes;
}

const Allocation* DeviceMemory::find(uint64_t address) const {
    std::shared_lock lock(state_->mutex);
    if (!contains(address)) return state_->host_range_at(address);
    auto it = state_->block_at(address);
    return it == state_->blocks.end() ? nullptr : &it->second.allocation;
}

// Nothing was written to these bytes of the arena.
void DeviceMemory::forget(uint64_t first_byte, uint64_t last_byte) {
    const uint64_t first = first_byte / 8, last = last_byte / 8;
    const uint64_t page_first = round_up(first, kPageBytes), page_last = last / kPageBytes * kPageBytes;
    if (page_first + 16 * kPageBytes < page_last) {
        std::memset(init_bits_ + first, 0, page_first - first);
        madvise(init_bits_ + page_first, page_last - page_first, MADV_DONTNEED);
        std::memset(init_bits_ + page_last, 0, last - page_last);
    } else {
        std::memset(init_bits_ + first, 0, last - first);
    }
}

void DeviceMemory::set_live(uint64_t address, bool live) {
    std::unique_lock lock(state_->mutex);
    const auto found = state_->block_at(address);
    if (found == state_->blocks.end()) return;
    state_->blocks.at(found->first).allocation.live = live;
    if (live) forget(found->second.begin - base_, found->second.end - base_);
    state_->generation.fetch_add(1, std::memory_order_release);
}

void DeviceMemory::set_current_device(uint32_t device, uint32_t reachable) {
    std::unique_lock lock(state_->mutex);
    current_device_ = device;
    reachable_ = reachable;
}

void DeviceMemory::set_granted(uint64_t address, uint32_t devices) {
    std::unique_lock lock(state_->mutex);
    if (const auto found = state_->block_at(address); found != state_->blocks.end())
        state_->blocks.at(found->first).allocation.granted = devices;
}

bool DeviceMemory::add_host_range(uint64_t address, uint64_t size_bytes) {
    std::unique_lock lock(state_->mutex);
    const auto next = state_->host_ranges.lower_bound(address);
    const bool meets_next = next != state_->host_ranges.end() && next->first - address < size_bytes;
    if (meets_next || state_->host_range_at(address) != nullptr || contains(address) || contains(address + size_bytes - 1)) return false;
    state_->host_ranges[address] = {address, size_bytes, ++state_->serial, MemoryKind::kRegistered, true, {}, 0, 0};
    has_host_ranges_ = true;
    return true;
}

bool DeviceMemory::remove_host_range(uint64_t address) {
    std::unique_lock lock(state_->mutex);
    const bool found = state_->host_ranges.erase(address) == 1;
    has_host_ranges_ = !state_->host_ranges.empty();
    return found;
}

bool DeviceMemory::accessible(uint64_t address, uint64_t size_bytes) const {
    const Allocation* found = find(address);
    if (found == nullptr || !found->live) return false;
    const Allocation& allocation = *found;
    return address >= allocation.address && size_bytes <= allocation.size_bytes &&
           address - allocation.address <= allocation.size_bytes - size_bytes;
}

void DeviceMemory::mark_initialized(uint64_t address, uint64_t size_bytes) {
    if (size_bytes == 0 || !contains(address) || size_bytes > base_ + capacity_ - address) return;
    // Neighbouring bytes of the same bit byte may be marked by another thread, hence the atomic edges.
    const uint64_t first = address - base_, last = first + size_bytes;  // [first, last)
    const uint64_t first_byte = first / 8, last_byte = (last - 1) / 8;
    const uint8_t head = static_cast<uint8_t>(0xFFu << (first % 8));
    const uint8_t tail = static_cast<uint8_t>(0xFFu >> (7 - (last - 1) % 8));
    if (first_byte == last_byte) {
        __atomic_fetch_or(&init_bits_[first_byte], static_cast<uint8_t>(head & tail), __ATOMIC_RELAXED);
        return;
    }
    __atomic_fetch_or(&init_bits_[first_byte], head, __ATOMIC_RELAXED);
    std::memset(init_bits_ + first_byte + 1, 0xFF, last_byte - first_byte - 1);
    __atomic_fetch_or(&init_bits_[last_byte], tail, __ATOMIC_RELAXED);
}

void DeviceMemory::mark_unwritten(uint64_t address, uint64_t size_bytes) {
    if (!contains(address)) return;
    for (uint64_t at = address - base_, end = at + size_bytes; at < end;) {
        const uint64_t in_byte = std::min<uint64_t>(8 - at % 8, end - at);
        const uint32_t bits = ((1u << in_byte) - 1) << (at % 8);
        if ((init_bits_[at / 8] & bits) != 0) __atomic_fetch_and(&init_bits_[at / 8], static_cast<uint8_t>(~bits), __ATOMIC_RELAXED);
        at += in_byte;
    }
}

bool DeviceMemory::forget_written(uint64_t address) {
    std::unique_lock lock(state_->mutex);
    const auto found = state_->block_at(address);
    if (found == state_->blocks.end() || !found->second.allocation.live || found->second.allocation.address != address) return false;
    forget(address - base_, round_up(address + found->second.allocation.size_bytes, 8) - base_);
    return true;
}

bool DeviceMemory::is_initialized(uint64_t address, uint64_t size_bytes) const {
    if (size_bytes == 0) return true;
    if (!contains(address)) return accessible(address, size_bytes);  // the host writes to its memory unseen
    if (size_bytes > base_ + capacity_ - address) return false;
    const uint64_t first = address - base_, last = first + size_bytes;
    const uint64_t first_byte = first / 8, last_byte = (last - 1) / 8;
    const uint8_t head = static_cast<uint8_t>(0xFFu << (first % 8));
    const uint8_t tail = static_cast<uint8_t>(0xFFu >> (7 - (last - 1) % 8));
    if (first_byte == last_byte) return (init_bits_[first_byte] & head & tail) == (head & tail);
    if ((init_bits_[first_byte] & head) != head || (init_bits_[last_byte] & tail) != tail) return false;
    uint64_t at = first_byte + 1;
    for (; at + 8 <= last_byte; at += 8) {
        uint64_t word;
        std::memcpy(&word, init_bits_ + at, 8);
        if (word != ~0ull) return false;
    }
    for (; at < last_byte; ++at) {
        if (init_bits_[at] != 0xFF) return false;
    }
    return true;
}

std::vector<std::pair<uint64_t, uint64_t>> DeviceMemory::find_initialized(uint64_t address, uint64_t size_bytes) const {
    std::vector<std::pair<uint64_t, uint64_t>> runs;
    if (size_bytes == 0 || !contains(address) || size_bytes > base_ + capacity_ - address) return runs;
    const auto add = [&](uint64_t at, uint64_t bytes) {
        if (!runs.empty() && runs.back().second == base_ + at)
            runs.back().second += bytes;
        else
            runs.emplace_back(base_ + at, base_ + at + bytes);
    };
    uint64_t at = address - base_;
    const uint64_t last = at + size_bytes;
    while (at < last) {
        // What nobody wrote has no pages in the file: a large allocation is mostly holes.
        const off_t data = lseek(state_->descriptor, static_cast<off_t>(at), SEEK_DATA);
        if (data < 0 || static_cast<uint64_t>(data) >= last) break;
        const off_t hole = lseek(state_->descriptor, data, SEEK_HOLE);
        const uint64_t end = hole < 0 ? last : std::min(last, static_cast<uint64_t>(hole));
        for (at = std::max(at, static_cast<uint64_t>(data)); at < end;) {
            uint64_t word = 0;
            const bool whole = at % 64 == 0 && end - at >= 64;
            if (whole) std::memcpy(&word, init_bits_ + at / 8, 8);
            if (whole && (word == 0 || word == ~0ull)) {  // most of it is all or nothing
                if (word != 0) add(at, 64);
                at += 64;
            } else {
                if (init_bits_[at / 8] >> (at % 8) & 1) add(at, 1);
                ++at;
            }
        }
    }
    return runs;
}

uint64_t DeviceMemory::set_flag(bool Allocation::* flag, const std::vector<uint64_t>& addresses) {
    std::unique_lock lock(state_->mutex);
    for (auto& [begin, block] : state_->blocks) block.allocation.*flag = false;
    for (const uint64_t address : addresses) {
        const auto found = state_->block_at(address);
        if (found == state_->blocks.end() || !found->second.allocation.live || found->second.allocation.address != address) return address;
        state_->blocks.at(found->first).allocation.*flag = true;
    }
    return 0;
}

uint64_t DeviceMemory::set_read_only(const std::vector<uint64_t>& addresses) { return set_flag(&Allocation::read_only, addresses); }

uint64_t DeviceMemory::set_given(const std::vector<uint64_t>& addresses) {
    has_given_ = !addresses.empty();
    if (has_given_) num_dependent_blocks = num_shared_updates = 0;
    set_flag(&Allocation::is_shared, {});
    return set_flag(&Allocation::given, addresses);
}

void DeviceMemory::note_shared(uint64_t address) {
    std::unique_lock lock(state_->mutex);
    if (const auto found = state_->block_at(address); found != state_->blocks.end())
        state_->blocks.at(found->first).allocation.is_shared = true;
}

uint64_t DeviceMemory::used_bytes(uint32_t device) const {
    std::shared_lock lock(state_->mutex);
    return state_->used_bytes[device];
}

std::vector<Allocation> DeviceMemory::live_allocations() const {
    std::shared_lock lock(state_->mutex);
    std::vector<Allocation> result;
    for (const auto& [begin, block] : state_->blocks) {
        if (block.allocation.live) result.push_back(block.allocation);
    }
    for (const auto& [begin, range] : state_->host_ranges) result.push_back(range);
    return result;
}

uint64_t DeviceMemory::high_water_address() const {
    std::shared_lock lock(state_->mutex);
    return std::max(state_->bump, state_->heap_end);
}

RaceShadow& DeviceMemory::race_shadow() {
    std::unique_lock lock(state_->mutex);
    if (!state_->race_shadow) state_->race_shadow = std::make_unique<RaceShadow>(capacity_);
    return *state_->race_shadow;
}

void DeviceMemory::make_footprints() {
    if (footprints_ == nullptr) footprints_ = new FootprintMap(base_, capacity_);
}

uint64_t DeviceMemory::generation() const { return state_->generation.load(std::memory_order_acquire); }

}  // namespace aicf::emu
