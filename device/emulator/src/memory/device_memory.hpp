// Memory of the emulated device: one arena, mapped twice from one memfd.
//
// A *device address* is what cudaMalloc returns; that range is PROT_NONE for the host, so that a host dereference of a device pointer
// faults as it does with a real device. The emulator itself works through the *alias*, the same pages at a constant distance.
// Pinned and managed memory lives in the same arena with its user-visible pages made readable and writable. Host memory of the program's
// own that it registers stays where it is: kernels use it by its host address.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace aicf::emu {

class RaceShadow;
class FootprintMap;

enum class MemoryKind : uint8_t {
    kDevice,
    kPinned,
    kManaged,
    kModule /* .global and .const variables */,
    kAsync,
    kHeap,             // malloc in kernels
    kManagedVariable,  // __managed__
    kRegistered,       // host memory of the program's own (cudaHostRegister), outside the arena
};

inline bool is_host_visible(MemoryKind kind) {
    return kind == MemoryKind::kPinned || kind == MemoryKind::kManaged || kind == MemoryKind::kManagedVariable ||
           kind == MemoryKind::kRegistered;
}

struct Allocation {
    uint64_t address = 0;
    uint64_t size_bytes = 0;  // as asked for; the arena rounds up and adds red zones
    uint64_t serial = 0;      // counts allocations, for reports
    MemoryKind kind = MemoryKind::kDevice;
    bool live = true;         // false: freed, in quarantine (its addresses are not reused until the quarantine overflows)
    std::string label;        // variable name for kModule and kManagedVariable
    uint32_t granted = 0;     // kAsync: a bit for each other device that its pool lets in
    int device = 0;           // that was current when it was made
    bool read_only = false;   // a store by a kernel is a finding
    bool given = false;       // its bytes are known, whether or not anything wrote them
    bool is_shared = false;   // a launch of which blocks were left out has stored to it, since allocations were given
};

enum class FreeResult : uint8_t { kOk, kNotAllocated, kDoubleFree, kInsidePointer };

// Thread-safe for the runtime's calls. The inline queries are lock-free and safe during a launch, because the runtime does not
// allocate or free while a kernel that could see the change is running.
class DeviceMemory {
public:
    // `num_devices` devices of `device_bytes` each share the arena.
    explicit DeviceMemory(uint64_t device_bytes, uint32_t num_devices = 1);
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    // The device whose memory allocate() gives and whose kernels run, and a bit for each device whose memory these may touch.
    void set_current_device(uint32_t device, uint32_t reachable);
    bool reaches(const Allocation& allocation) const {
        if (is_host_visible(allocation.kind)) return true;
        if (allocation.kind == MemoryKind::kAsync) return ((allocation.granted | 1u << allocation.device) >> current_device_ & 1) != 0;
        return (reachable_ >> allocation.device & 1) != 0;
    }
    // The devices that may touch stream-ordered memory beside its own.
    void set_granted(uint64_t address, uint32_t devices);

    // Marks the live allocations that begin at these addresses, and no others. Returns the first address that is none, 0 when all are.
    uint64_t set_read_only(const std::vector<uint64_t>& addresses);

    // The same for those whose bytes are known, whether or not anything wrote them. Where there are any, launches tell what blocks that do
    // not run may have a part in: its bytes count as unwritten.
    uint64_t set_given(const std::vector<uint64_t>& addresses);
    void note_shared(uint64_t address);
    bool has_given() const { return has_given_; }
    // Since set_given() of any: blocks that worked on what others may have a part in, and updates of memory that others may update.
    std::atomic<uint64_t> num_dependent_blocks{0}, num_shared_updates{0};

    // Whether fresh memory is zero, where it is filled with a pattern otherwise; unwritten it is all the same.
    void set_zero_fresh(bool zero) { zero_fresh_ = zero; }

    // Memory of graphs comes and goes at one address; its bytes are uninitialised each time it comes.
    void set_live(uint64_t address, bool live);

    // Lets kernels use [address, address + size) of the host's own memory. False: it overlaps such a range, or the arena.
    bool add_host_range(uint64_t address, uint64_t size_bytes);
    bool remove_host_range(uint64_t address);
    bool has_host_ranges() const { return has_host_ranges_; }
    bool has_host_visible() const { return has_host_visible_; }  // whether there ever was memory that host and kernels share
    // What alias(0) is to be added to, to get at the bytes of an address of either kind.
    uint64_t data_offset(uint64_t address) const { return contains(address) ? address : address - delta_; }

    // 256-byte aligned address, or 0 when the device is full. New memory is uninitialised (the bytes are a poison pattern).
    uint64_t allocate(uint64_t size_bytes, MemoryKind kind, std::string label = {});
    FreeResult release(uint64_t address, bool in_kernel = false);

    // The heap of malloc and free in kernels, which the two functions above serve by kHeap and by `in_kernel`, also while kernels run.
    // Before a launch that uses it: how far it may grow is fixed, so that high_water_address() holds for the whole launch.
    void open_heap();
    void set_heap_limit(uint64_t bytes);

    bool contains(uint64_t address) const { return address - base_ < capacity_; }
    std::byte* alias(uint64_t address) const { return reinterpret_cast<std::byte*>(address + delta_); }

    // The allocation (live or quarantined) that holds `address`, else the nearest one below within its red zone, else nullptr; a registered
    // range of the host's for an address in it.
    const Allocation* find(uint64_t address) const;
    // True when [address, address+size) lies in one live allocation.
    bool accessible(uint64_t address, uint64_t size_bytes) const;

    // Initialisation state, one bit a byte.
    void mark_initialized(uint64_t address, uint64_t size_bytes);
    void mark_unwritten(uint64_t address, uint64_t size_bytes);
    // The same for all of the live allocation that begins at an address; false: there is none.
    bool forget_written(uint64_t address);
    bool is_initialized(uint64_t address, uint64_t size_bytes) const;
    // The runs [begin, end) of initialised bytes in [address, address + size), ascending.
    std::vector<std::pair<uint64_t, uint64_t>> find_initialized(uint64_t address, uint64_t size_bytes) const;
    const uint8_t* init_bits() const { return init_bits_; }  // bit i of byte j: arena byte 8*j+i
    uint8_t* init_bits() { return init_bits_; }

    uint64_t base() const { return base_; }
    uint64_t capacity_bytes() const { return capacity_; }
    uint64_t device_bytes() const { return device_bytes_; }
    uint64_t used_bytes(uint32_t device) const;  // what host and device allocations of it hold
    std::vector<Allocation> live_allocations() const;
    // One past the last arena byte that was ever handed out: bounds a scan over the arena.
    uint64_t high_water_address() const;
    // What the race check remembers; made when first asked for.
    RaceShadow& race_shadow();
    // What the launch that runs has touched; make_footprints() before the first launch that is to note it.
    FootprintMap& footprints() const { return *footprints_; }
    void make_footprints();
    // Bumped by every allocate and release: lets the interpreter cache look-ups.
    uint64_t generation() const;

private:
    void fill_fresh(uint64_t address, uint64_t bytes);
    void forget(uint64_t first_byte, uint64_t last_byte);
    struct State;
    uint64_t set_flag(bool Allocation::* flag, const std::vector<uint64_t>& addresses);
    uint64_t base_ = 0;
    uint64_t capacity_ = 0;
    uint64_t delta_ = 0;
    uint64_t device_bytes_ = 0;
    uint32_t current_device_ = 0;
    bool zero_fresh_ = false;
    bool has_given_ = false;
    uint32_t reachable_ = ~0u;
    bool has_host_ranges_ = false;
    bool has_host_visible_ = false;
    uint8_t* init_bits_ = nullptr;
    FootprintMap* footprints_ = nullptr;
    State* state_ = nullptr;
};

}  // namespace aicf::emu
