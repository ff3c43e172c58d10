// Zstandard decompression (RFC 8878), for the PTX that nvcc compresses by default. One frame, no dictionary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace aicf::emu {

// Decodes one frame into `plain`, which may not grow beyond `most_bytes`. False, with the reason, for input that is damaged or hostile;
// memory use is bounded by `most_bytes` and a constant. Skippable frames before it are skipped; the content checksum is verified.
bool zstd_decode(const uint8_t* source, size_t size_bytes, size_t most_bytes, std::string* plain, std::string* error);

}  // namespace aicf::emu
