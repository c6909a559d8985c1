// Runs of bound commands as CUDA graphs: a chain of nodes, one a kernel or copy (batch.hpp).
//
// What a node was given is what stands in its packet, of which a copy is kept: at a submit each packet is compared with
// it, and the nodes of those that changed are given their new parameters. Launches under way keep what they had. Where
// a node can't be changed so (another kernel, nothing instead of something, memory of another kind), the graph is made
// anew.
#include "cuda/batch.hpp"

#include <cstring>
#include <map>
#include <vector>

#include "core/packet.hpp"
#include "cuda/lane.hpp"

namespace hcq::cuda {

namespace {
const PacketHeader& header(const uint8_t* packet) { return *reinterpret_cast<const PacketHeader*>(packet); }

// Whether a packet is something to do: no groups, no bytes, a copy onto itself and a barrier are not.
bool does(const uint8_t* packet) {
  if (header(packet).type == PacketType::exec) {
    auto* p = reinterpret_cast<const ExecPacket*>(packet);
    return p->groups[0] && p->groups[1] && p->groups[2];
  }
  if (header(packet).type != PacketType::copy) return false;
  auto* p = reinterpret_cast<const CopyPacket*>(packet);
  return p->bytes && p->destination != p->source;
}

struct Node {
  uint32_t offset = 0, bytes = 0;  // of the packet, from the run's start
  Handle node = nullptr;           // null: there is nothing to do
};

// One graph, of one run.
struct Run {
  std::vector<Node> nodes;
  std::vector<uint8_t> given;  // the packets as the nodes have them
  Handle graph = nullptr;      // what `exec` was made of: nodes are named by those of this one, which must live
  Handle exec = nullptr;
  bool refused = false;
};

// What an interface keeps with bound commands.
struct Runs {
  std::shared_ptr<Context> context;
  std::map<uint32_t, Run> by_offset;
  uint32_t generation = g_generation;
};

void end(Runs& runs, Run& run) {
  if (run.exec) --g_held.graphs;
  if ((run.exec || run.graph) && !runs.context->abandoned()) {
    Current current(*runs.context);
    if (run.exec) api().graph_exec_destroy(run.exec);
    if (run.graph) api().graph_destroy(run.graph);
  }
  run.exec = run.graph = nullptr;
}

void drop(void* carried) {
  auto* runs = static_cast<Runs*>(carried);
  if (runs->generation != g_generation) return;
  for (auto& [offset, run] : runs->by_offset) end(*runs, run);
  delete runs;
}

KernelNode kernel_node(const uint8_t* packet, void** pointers) {
  auto* p = reinterpret_cast<ExecPacket*>(const_cast<uint8_t*>(packet));
  const auto& kernel = *static_cast<const Kernel*>(p->program->entry);
  point(kernel, inline_arguments(p), pointers);
  KernelNode node{};
  node.function = kernel.function;
  std::memcpy(node.grid, p->groups, sizeof node.grid);
  std::memcpy(node.block, p->items, sizeof node.block);
  node.shared_bytes = kernel.local;
  node.params = pointers;
  return node;
}

Copy3D copy_node(const uint8_t* packet) {
  auto* p = reinterpret_cast<const CopyPacket*>(packet);
  Copy3D copy{};
  copy.src_type = copy.dst_type = kUnified;
  copy.src_device = p->source;
  copy.dst_device = p->destination;
  copy.width = p->bytes;
  copy.height = copy.depth = 1;
  return copy;
}

// Graphs launch cooperatively by an attribute of nodes, which has no update: such commands go one by one.
bool together(const uint8_t* packet) {
  if (header(packet).type != PacketType::exec) return false;
  return static_cast<const Kernel*>(reinterpret_cast<const ExecPacket*>(packet)->program->entry)->together;
}

bool make(Runs& runs, Run& run, const uint8_t* first, uint32_t bytes) {
  end(runs, run);
  run.nodes.clear();
  run.given.assign(first, first + bytes);
  bool made = api().graph_create(&run.graph, 0) == kSuccess;
  Handle before = nullptr;
  for (uint32_t at = 0; made && at < bytes; at += header(first + at).units * kUnit) {
    const uint8_t* packet = first + at;
    Node node{at, header(packet).units * kUnit, nullptr};
    if (together(packet)) made = false;
    if (made && does(packet)) {
      const Handle* after = before ? &before : nullptr;
      size_t count = before ? 1 : 0;
      if (header(packet).type == PacketType::exec) {
        void* pointers[kMostArguments];
        KernelNode params = kernel_node(packet, pointers);
        made = api().graph_add_kernel(&node.node, run.graph, after, count, &params) == kSuccess;
      } else {
        Copy3D params = copy_node(packet);
        made = api().graph_add_copy(&node.node, run.graph, after, count, &params, runs.context->handle()) == kSuccess;
      }
      before = node.node;
    }
    run.nodes.push_back(node);
  }
  made = made && api().graph_instantiate(&run.exec, run.graph, 0) == kSuccess;
  if (made) ++g_held.graphs, ++g_held.graphs_made;
  if (!made) end(runs, run);
  run.refused = !made;
  return made;
}

// Whether what changed of a packet could be given to its node.
bool change(const Runs& runs, const Run& run, const Node& node, const uint8_t* packet) {
  const uint8_t* given = run.given.data() + node.offset;
  if (header(packet).type != header(given).type || does(packet) != (node.node != nullptr)) return false;
  if (!node.node) return true;
  if (header(packet).type == PacketType::exec) {
    if (reinterpret_cast<const ExecPacket*>(packet)->program != reinterpret_cast<const ExecPacket*>(given)->program)
      return false;
    void* pointers[kMostArguments];
    KernelNode params = kernel_node(packet, pointers);
    return api().graph_exec_kernel(run.exec, node.node, &params) == kSuccess;
  }
  Copy3D params = copy_node(packet);
  return api().graph_exec_copy(run.exec, node.node, &params, runs.context->handle()) == kSuccess;
}

bool renew(Runs& runs, Run& run, const uint8_t* first, uint32_t bytes) {
  if (run.given.size() != bytes) return make(runs, run, first, bytes);
  for (const Node& node : run.nodes) {
    const uint8_t* packet = first + node.offset;
    if (!std::memcmp(packet, run.given.data() + node.offset, node.bytes)) continue;
    if (!change(runs, run, node, packet)) return make(runs, run, first, bytes);
    std::memcpy(run.given.data() + node.offset, packet, node.bytes);
  }
  return true;
}
}  // namespace

bool launch_batch(const std::shared_ptr<Context>& context, Handle stream, BoundCommands* commands, uint32_t offset,
                  uint32_t end, std::string* error) {
  if (!api().graph_launch || !api().graph_instantiate) return false;
  auto* runs = static_cast<Runs*>(commands->carried);
  if (!runs) {
    commands->carried = runs = new Runs{context, {}};
    commands->drop = drop;
  }
  if (runs->context != context) return false;
  Run& run = runs->by_offset[offset];
  if (run.refused) return false;
  const uint8_t* first = commands->memory + static_cast<size_t>(offset) * kUnit;
  uint32_t bytes = (end - offset) * kUnit;
  Current current(*context);
  if (!renew(*runs, run, first, bytes)) return false;
  Result result = api().graph_launch(run.exec, stream);
  if (result != kSuccess) *error = failure_of("cuGraphLaunch", result);
  return result == kSuccess;
}

}  // namespace hcq::cuda
