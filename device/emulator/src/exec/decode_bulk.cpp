// Bulk and tensor copies.
#include "decode.hpp"

namespace aicf::emu {

bool FunctionDecoder::decode_bulk() { return false; }

}  // namespace aicf::emu
