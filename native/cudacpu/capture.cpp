// Stream capture: see capture.hpp.
#include "capture.hpp"

namespace cudacpu {

CUresult capture_node(Stream&, const NodePtr&) { return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; }

}  // namespace cudacpu
