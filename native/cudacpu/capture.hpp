// What calls ask of stream capture. What does not live here: graphs.
#pragma once
#include "stream.hpp"

namespace cudacpu {

struct Event;

// Adds the node to the graph that the stream is being captured into.
CUresult capture_node(Stream& stream, const NodePtr& node);

}  // namespace cudacpu
