// Clusters and grids.
#include "decode.hpp"

namespace aicf::emu {

bool FunctionDecoder::decode_cluster() { return false; }

}  // namespace aicf::emu
