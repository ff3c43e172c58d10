// Fuzzing the reader of fat binaries: container, entries, decompression, and the choice among them.
#include <cstring>
#include <vector>

#include "runtime/errors.hpp"
#include "runtime/fatbin.hpp"
#include "runtime/zstd_decode.hpp"

using namespace aicf::emu;

namespace {

constexpr size_t kMostPlainBytes = size_t{64} << 20;  // a header may claim more than this machine should be asked for

// The registration call hands over an address without a size, so the reader has to trust the container's own; here that must fit the input.
bool container_fits(const std::vector<std::byte>& image) {
    if (image.size() < 16) return false;
    uint16_t header_bytes;
    uint64_t payload_bytes;
    std::memcpy(&header_bytes, &image[6], sizeof header_bytes);
    std::memcpy(&payload_bytes, &image[8], sizeof payload_bytes);
    return header_bytes <= image.size() && payload_bytes <= image.size() - header_bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::string plain, error;
    zstd_decode(data, size, kMostPlainBytes, &plain, &error);
    cubin_registers(std::string(reinterpret_cast<const char*>(data), size));

    std::vector<std::byte> image(size);
    if (size) std::memcpy(image.data(), data, size);
    if (!container_fits(image)) return 0;
    uint32_t magic = kFatbinMagic;  // a wrapper would hold a pointer, which no file can
    std::memcpy(image.data(), &magic, sizeof magic);
    try {
        for (const FatbinEntry& entry : read_fatbin(image.data())) {
            entry.arch_name();
            if (entry.plain_bytes <= kMostPlainBytes) entry.contents();
        }
    } catch (const Failure&) {  // how the reader refuses
    }
    return 0;
}
