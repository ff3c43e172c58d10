// Why an instruction that cannot be decoded is not the device's: those that came with later chips, and those that no device has any
// more. PTX ISA 9.0, "Target ISA Notes" of each instruction.
#include <array>
#include <string_view>

#include "decode.hpp"

namespace aicf::emu {
namespace {

constexpr std::string_view kBlackwell = "it needs sm_100 or newer";
constexpr std::string_view kMulticast = "multicast memory is of several devices, and there is one";
constexpr std::string_view kRemoved = "it was removed with sm_70; the .sync form exists";

struct Refusal {
    std::string_view opcode;  // "": any
    std::string_view word;    // a modifier, or how one begins; "": any
    std::string_view reason;
};

constexpr std::array kRefusals{
    Refusal{"tcgen05", "", "fifth-generation tensor cores need sm_100"},
    Refusal{"multimem", "", kMulticast},
    Refusal{"clusterlaunchcontrol", "", kBlackwell},
    Refusal{"st", "bulk", kBlackwell},
    Refusal{"mma", "kind::", "these types need sm_100 or sm_120"},
    Refusal{"mma", "block_scale", "block scaling needs sm_100 or sm_120"},
    Refusal{"mma", "e2m1", "these types need sm_100 or sm_120"},
    Refusal{"mma", "e2m3", "these types need sm_100 or sm_120"},
    Refusal{"mma", "e3m2", "these types need sm_100 or sm_120"},
    Refusal{"ldmatrix", "m16n16", kBlackwell},
    Refusal{"ldmatrix", "m8n16", kBlackwell},
    Refusal{"stmatrix", "m16n8", kBlackwell},
    Refusal{"cp", "cta_group::", kBlackwell},
    Refusal{"cp", "tile::gather4", kBlackwell},
    Refusal{"cp", "tile::scatter4", kBlackwell},
    Refusal{"cp", "im2col::w", kBlackwell},
    Refusal{"cp", "cp_mask", kBlackwell},
    Refusal{"cp", "ignore_oob", "it came after PTX ISA 9.0"},
    Refusal{"tensormap", "swizzle_atomicity", kBlackwell},
    Refusal{"redux", "f32", "floating-point reductions need sm_100a"},
    Refusal{"cvt", "rs", kBlackwell},
    Refusal{"cvt", "e2m1", kBlackwell},
    Refusal{"cvt", "e2m3", kBlackwell},
    Refusal{"cvt", "e3m2", kBlackwell},
    Refusal{"cvt", "ue8m0", kBlackwell},
    Refusal{"cvt", "scaled", kBlackwell},
    Refusal{"", "f32x2", "packed f32 arithmetic needs sm_100"},
};

}  // namespace

std::string FunctionDecoder::refusal() const {
    if (current_->opcode == "shfl" || current_->opcode == "vote") return has("sync") ? "" : std::string(kRemoved);
    for (const Refusal& row : kRefusals) {
        if (!row.opcode.empty() && row.opcode != current_->opcode) continue;
        if (row.word.empty()) return std::string(row.reason);
        for (const std::string& word : current_->modifiers) {
            if (word.starts_with(row.word)) return std::string(row.reason);
        }
    }
    return {};
}

}  // namespace aicf::emu
