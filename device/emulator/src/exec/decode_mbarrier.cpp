// mbarrier.
#include "decode.hpp"

namespace aicf::emu {

bool FunctionDecoder::decode_mbarrier() { return false; }

}  // namespace aicf::emu
