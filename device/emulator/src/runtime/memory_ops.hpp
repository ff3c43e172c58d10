// Copies and fills with every address checked, and the initialisation bits carried along.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_abi.hpp"
#include "runtime.hpp"

namespace aicf::emu {

// Checks a copy as far as CUDA does when it is enqueued, or before it runs (`now`): direction against the kinds of pointer, pitches,
// ranges.
void check_copy(Runtime& runtime, const abi::Memcpy3DParms& params, bool now = false);
void run_copy(Runtime& runtime, const abi::Memcpy3DParms& params);

void check_fill(Runtime& runtime, const abi::MemsetParams& params, size_t depth, size_t slice_pitch, bool now = false);
void run_fill(Runtime& runtime, const abi::MemsetParams& params, size_t depth, size_t slice_pitch);

// Rows of `width` bytes at base + z * slice + y * pitch.
struct MemoryRows {
    uint64_t base = 0;
    size_t pitch = 0, slice = 0;
    size_t width = 0, height = 0, depth = 0;
};
// What a copy writes and reads, and what a fill writes.
struct CopyRows {
    MemoryRows dst, src;
};
CopyRows rows_of_copy(Runtime& runtime, const abi::Memcpy3DParms& params);
MemoryRows rows_of_fill(const abi::MemsetParams& params, size_t depth, size_t slice_pitch);

// A fill of 1-, 2- or 4-byte elements in a stream, as an API call of its own; returns its error.
int fill_elements(void* dst, uint32_t value, uint32_t element_bytes, size_t count, void* stream);

// Copies of API calls: queued in a stream (or captured), and done when this returns.
void enqueue_copy(Runtime& runtime, void* stream, bool per_thread, const abi::Memcpy3DParms& params);
void copy_now(Runtime& runtime, bool per_thread, const abi::Memcpy3DParms& params);

// A copy of `count` bytes, and of `height` rows, in the general form.
abi::Memcpy3DParms linear_copy(void* dst, const void* src, size_t count, int kind);
abi::Memcpy3DParms pitched_copy(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height, int kind);

// "8 bytes into allocation #3 of 64 bytes", "in no allocation".
std::string describe_place(Runtime& runtime, uint64_t address);

// Where the emulator itself reads and writes the bytes of a user's pointer.
std::byte* host_view(Runtime& runtime, uint64_t address);

}  // namespace aicf::emu
