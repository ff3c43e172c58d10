// LZ4 block format (github.com/lz4/lz4, doc/lz4_Block_format.md), which toolkits before 13 used in fat binaries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace aicf::emu {

// Decodes one block of exactly `plain_bytes` bytes; false when the input is damaged.
bool lz4_decode(const uint8_t* source, size_t size_bytes, size_t plain_bytes, std::string* plain);

}  // namespace aicf::emu
