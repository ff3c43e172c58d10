// Textures and surfaces.
#include "decode.hpp"

namespace aicf::emu {

bool FunctionDecoder::decode_texture() { return false; }

}  // namespace aicf::emu
