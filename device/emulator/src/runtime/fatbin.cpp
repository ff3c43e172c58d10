#include "fatbin.hpp"

#include <elf.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "errors.hpp"
#include "lz4_decode.hpp"
#include "zstd_decode.hpp"

namespace aicf::emu {
namespace {

constexpr uint64_t kFlagLz4 = 0x2000;
constexpr uint64_t kFlagZstd = 0x8000;
constexpr uint64_t kFlagArchSpecific = 0x100000;
constexpr uint64_t kFlagFamilySpecific = 0x200000;
constexpr size_t kMostPlainBytes = size_t{1} << 30;

struct Wrapper {
    uint32_t magic;
    uint32_t version;
    const void* data;
    const void* prelinked;
};

struct ContainerHeader {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t payload_bytes;
};

template <class T>
T load(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

FatbinEntry read_entry(const std::byte* at, uint64_t room, uint64_t* size_bytes) {
    if (room < 64) throw Failure{kErrInvalidKernelImage, "the fat binary ends within an entry's header"};
    const auto header_bytes = load<uint32_t>(at + 4);
    const auto payload_bytes = load<uint64_t>(at + 8);
    const auto compressed_bytes = load<uint32_t>(at + 16);
    if (header_bytes < 64 || header_bytes > room || payload_bytes > room - header_bytes || compressed_bytes > payload_bytes)
        throw Failure{kErrInvalidKernelImage, "the fat binary has an entry that reaches past its end"};
    FatbinEntry entry;
    entry.kind = static_cast<FatbinEntry::Kind>(load<uint16_t>(at));
    entry.isa_minor = load<uint16_t>(at + 24);
    entry.isa_major = load<uint16_t>(at + 26);
    entry.arch = load<uint32_t>(at + 28);
    entry.flags = load<uint64_t>(at + 40);
    entry.is_arch_specific = (entry.flags & kFlagArchSpecific) != 0;
    entry.is_family_specific = (entry.flags & kFlagFamilySpecific) != 0;
    entry.data = at + header_bytes;
    const bool compressed = (entry.flags & (kFlagLz4 | kFlagZstd)) != 0;
    entry.stored_bytes = compressed && compressed_bytes != 0 ? compressed_bytes : payload_bytes;
    entry.plain_bytes = compressed ? load<uint64_t>(at + 56) : payload_bytes;
    *size_bytes = header_bytes + payload_bytes;
    return entry;
}

}  // namespace

std::string FatbinEntry::arch_name() const {
    return "sm_" + std::to_string(arch) + (is_arch_specific ? "a" : is_family_specific ? "f" : "");
}

std::string FatbinEntry::contents() const {
    std::string plain;
    if (plain_bytes > kMostPlainBytes) throw Failure{kErrInvalidKernelImage, "the fat binary claims an entry of more than 1 GiB"};
    const auto* source = reinterpret_cast<const uint8_t*>(data);
    if ((flags & kFlagZstd) != 0) {
        std::string error;
        if (!zstd_decode(source, stored_bytes, plain_bytes, &plain, &error))
            throw Failure{kErrInvalidKernelImage, "a zstd-compressed entry of the fat binary is damaged: " + error};
    } else if ((flags & kFlagLz4) != 0) {
        if (!lz4_decode(source, stored_bytes, plain_bytes, &plain))
            throw Failure{kErrInvalidKernelImage, "an LZ4-compressed entry of the fat binary is damaged"};
    } else {
        plain.assign(reinterpret_cast<const char*>(data), stored_bytes);
    }
    if (kind == Kind::kPtx) plain.resize(std::strlen(plain.c_str()));  // text is NUL-terminated and padded
    return plain;
}

std::vector<FatbinEntry> read_fatbin(const void* image) {
    const auto* at = static_cast<const std::byte*>(image);
    if (load<uint32_t>(at) == kFatbinWrapperMagic) at = static_cast<const std::byte*>(load<Wrapper>(at).data);
    if (at == nullptr || load<uint32_t>(at) != kFatbinMagic)
        throw Failure{kErrInvalidKernelImage, "the registered image is no fat binary (wrong magic number)"};
    const auto header = load<ContainerHeader>(at);
    if (header.header_bytes < sizeof header) throw Failure{kErrInvalidKernelImage, "the fat binary's header is too short"};
    at += header.header_bytes;
    std::vector<FatbinEntry> entries;
    for (uint64_t offset = 0; offset < header.payload_bytes;) {
        uint64_t size_bytes = 0;
        entries.push_back(read_entry(at + offset, header.payload_bytes - offset, &size_bytes));
        offset += size_bytes;
    }
    return entries;
}

std::vector<const void*> prelinked_images(const void* image) {
    constexpr uint32_t kRelocatable = 2;
    std::vector<const void*> images;
    const auto* at = static_cast<const std::byte*>(image);
    if (load<uint32_t>(at) != kFatbinWrapperMagic) return images;
    const auto wrapper = load<Wrapper>(at);
    if (wrapper.version != kRelocatable || wrapper.prelinked == nullptr) return images;
    for (auto each = static_cast<const void* const*>(wrapper.prelinked); *each != nullptr; ++each) images.push_back(*each);
    return images;
}

bool is_native(const FatbinEntry& entry, const Target& target) {
    const auto own = static_cast<uint32_t>(target.major * 10 + target.minor);
    if (entry.arch > own) return false;
    if (entry.is_arch_specific) return entry.arch == own;
    return !entry.is_family_specific || entry.arch / 10 == own / 10;
}

int choose_ptx(const std::vector<FatbinEntry>& entries, const Target& target) {
    const auto own = static_cast<int>(target.major * 10 + target.minor);
    const auto rank = [&](const FatbinEntry& entry) {
        const int arch = static_cast<int>(entry.arch);
        const int specific = entry.is_arch_specific ? 2 : entry.is_family_specific ? 1 : 0;
        if (is_native(entry, target)) return std::array{2, arch, specific};
        return std::array{specific == 0 ? 1 : 0, -std::abs(arch - own), -specific};
    };
    int best = -1;
    for (int i = 0; i < static_cast<int>(entries.size()); ++i) {
        if (entries[i].kind != FatbinEntry::Kind::kPtx) continue;
        if (best < 0 || rank(entries[i]) > rank(entries[best])) best = i;
    }
    return best;
}

int choose_elf(const std::vector<FatbinEntry>& entries, const Target& target) {
    const auto own = static_cast<uint32_t>(target.major * 10 + target.minor);
    for (int i = 0; i < static_cast<int>(entries.size()); ++i)
        if (entries[i].kind == FatbinEntry::Kind::kElf && entries[i].arch == own) return i;
    return -1;
}

std::map<std::string, int> cubin_registers(const std::string& elf) {
    // .nv.info is a list of {u8 format, u8 attribute, u16 size, bytes}; format 4 with attribute 0x2f holds {u32 symbol, u32 registers}.
    constexpr uint8_t kFormatSized = 4;
    constexpr uint8_t kAttributeRegisters = 0x2f;
    std::map<std::string, int> registers;
    const auto* base = reinterpret_cast<const std::byte*>(elf.data());
    const auto fits = [&](uint64_t offset, uint64_t size) { return offset <= elf.size() && size <= elf.size() - offset; };
    if (elf.size() < sizeof(Elf64_Ehdr) || std::memcmp(elf.data(), ELFMAG, SELFMAG) != 0) return registers;
    const auto header = load<Elf64_Ehdr>(base);
    if (header.e_shentsize != sizeof(Elf64_Shdr) || !fits(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr))) return registers;
    const auto section = [&](uint32_t index) { return load<Elf64_Shdr>(base + header.e_shoff + index * sizeof(Elf64_Shdr)); };
    if (header.e_shstrndx >= header.e_shnum) return registers;
    const Elf64_Shdr names = section(header.e_shstrndx);
    const auto text_at = [&](const Elf64_Shdr& table, uint64_t offset) -> std::string {
        if (!fits(table.sh_offset, table.sh_size) || offset >= table.sh_size) return {};
        const char* begin = elf.data() + table.sh_offset + offset;
        return std::string(begin, strnlen(begin, table.sh_size - offset));
    };
    Elf64_Shdr info{}, symbols{}, strings{};
    for (uint32_t i = 0; i < header.e_shnum; ++i) {
        const Elf64_Shdr each = section(i);
        if (text_at(names, each.sh_name) == ".nv.info") info = each;
        if (each.sh_type == SHT_SYMTAB && each.sh_link < header.e_shnum) symbols = each, strings = section(each.sh_link);
    }
    if (!fits(info.sh_offset, info.sh_size) || !fits(symbols.sh_offset, symbols.sh_size)) return registers;
    for (uint64_t at = 0; at + 4 <= info.sh_size;) {
        const std::byte* item = base + info.sh_offset + at;
        const auto format = load<uint8_t>(item);
        const auto size = format == kFormatSized ? load<uint16_t>(item + 2) : uint16_t{0};
        if (format == kFormatSized && load<uint8_t>(item + 1) == kAttributeRegisters && size == 8 && at + 12 <= info.sh_size) {
            const auto index = load<uint32_t>(item + 4);
            if ((uint64_t{index} + 1) * sizeof(Elf64_Sym) <= symbols.sh_size) {
                const auto symbol = load<Elf64_Sym>(base + symbols.sh_offset + index * sizeof(Elf64_Sym));
                registers[text_at(strings, symbol.st_name)] = static_cast<int>(load<uint32_t>(item + 8));
            }
        }
        at += 4u + size;
    }
    return registers;
}

}  // namespace aicf::emu
