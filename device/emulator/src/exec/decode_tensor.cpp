// Tensor-core instructions.
#include "decode.hpp"

namespace aicf::emu {

bool FunctionDecoder::decode_tensor() { return false; }

}  // namespace aicf::emu
