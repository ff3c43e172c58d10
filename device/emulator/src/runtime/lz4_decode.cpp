#include "lz4_decode.hpp"

namespace aicf::emu {
namespace {

// A length of 15 in the token goes on in bytes until one is not 255.
bool extend_length(const uint8_t*& at, const uint8_t* end, size_t most, size_t* length) {
    if (*length != 15) return true;
    uint8_t byte = 255;
    while (byte == 255) {
        if (at == end || *length > most) return false;
        byte = *at++;
        *length += byte;
    }
    return true;
}

}  // namespace

bool lz4_decode(const uint8_t* source, size_t size_bytes, size_t plain_bytes, std::string* plain) {
    constexpr size_t kLeastMatch = 4;
    plain->clear();
    plain->reserve(plain_bytes);
    const uint8_t* at = source;
    const uint8_t* const end = source + size_bytes;
    while (at != end) {
        const uint8_t token = *at++;
        size_t literals = token >> 4;
        if (!extend_length(at, end, plain_bytes, &literals)) return false;
        if (literals > static_cast<size_t>(end - at) || literals > plain_bytes - plain->size()) return false;
        plain->append(reinterpret_cast<const char*>(at), literals);
        at += literals;
        if (at == end) break;  // the last sequence has no match
        if (end - at < 2) return false;
        const size_t offset = at[0] | at[1] << 8;
        at += 2;
        size_t length = token & 15;
        if (!extend_length(at, end, plain_bytes, &length)) return false;
        length += kLeastMatch;
        if (offset == 0 || offset > plain->size() || length > plain_bytes - plain->size()) return false;
        for (size_t i = 0; i < length; ++i) plain->push_back((*plain)[plain->size() - offset]);
    }
    return plain->size() == plain_bytes;
}

}  // namespace aicf::emu
