// Fat binaries: the container in which nvcc embeds PTX and machine code. Layout checked against nvcc 13.0's output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "targets.hpp"

namespace aicf::emu {

struct FatbinEntry {
    enum class Kind : uint16_t { kPtx = 1, kElf = 2 };
    Kind kind = Kind::kPtx;
    uint32_t arch = 0;              // 90
    bool is_arch_specific = false;  // 90a
    bool is_family_specific = false;  // 100f
    uint32_t isa_major = 0, isa_minor = 0;
    uint64_t flags = 0;
    const std::byte* data = nullptr;
    size_t stored_bytes = 0;        // compressed where the flags say so
    size_t plain_bytes = 0;

    std::string arch_name() const;  // "sm_90a"
    // The plain contents. Throws Failure(200) when they do not decompress.
    std::string contents() const;
};

constexpr uint32_t kFatbinWrapperMagic = 0x466243B1;
constexpr uint32_t kFatbinMagic = 0xBA55ED50;

// The entries of a container, or of the container behind a wrapper. Throws Failure(200) on a damaged header.
std::vector<FatbinEntry> read_fatbin(const void* image);

// The containers of relocatable code that a linked program (nvcc -rdc=true) keeps behind its wrapper, one for each object; else none.
std::vector<const void*> prelinked_images(const void* image);

// Whether a device of the target takes PTX of the entry: no newer architecture, "a" only on its own, "f" only within its family.
bool is_native(const FatbinEntry& entry, const Target& target);
// Index of the PTX entry to run; -1: none. The highest native one; without any, the nearest newer one, for a module that uses no
// instruction of newer chips can be run all the same; an "f" or "a" of another chip only where there is nothing else.
int choose_ptx(const std::vector<FatbinEntry>& entries, const Target& target);
// Index of the machine code for exactly this target; -1: none.
int choose_elf(const std::vector<FatbinEntry>& entries, const Target& target);

// Registers per thread by kernel name, read from a cubin's .nv.info; empty where the file is not understood.
std::map<std::string, int> cubin_registers(const std::string& elf);

}  // namespace aicf::emu
