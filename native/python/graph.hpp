// What the files of _native.GraphCommands share: graph_type.cpp builds it, graph_changes.cpp and
// graph_batch.cpp change it, replay_type.cpp submits it.
#pragma once
#include <vector>

#include "python/arguments.hpp"

namespace hcq {

// Commands that run one after the other on one queue of a device.
struct GraphLane {
  Device* device;
  PyObject* device_object;  // borrowed: the graph holds its devices
  Queue* queue;             // the device's; ours is a reference
  Signal* counter;          // counts marks over all replays
  uint64_t marks = 0;       // in one replay
  bool main;                // lane 0 of its device: sets the device's timeline
  std::vector<uint8_t> packets;
  BoundCommands* commands = nullptr;  // once sealed
  std::vector<Patch> pending;         // what changed since the last replay
  size_t most = 1024;                 // of `pending`, before they are looked through
};

struct GraphCommand {
  uint32_t lane, offset;             // units
  Program* program;                  // null: not an exec
  uint32_t buffers;                  // how many it takes
  std::vector<uint32_t> slots = {};  // of its values
};

// Something that several commands use and replays change: an address or a value.
struct GraphSlot {
  std::vector<uint32_t> lanes;  // that have places of it
  bool known = false;           // `content` is what the commands hold
  uint64_t content = 0;
  PyObject* held = nullptr;  // keeps the memory
  const Program* program = nullptr;
  uint32_t buffers = 0, position = 0;  // of the value, in its first command
  bool structure = false;              // which may be longer than a content: it is patched place by place
};

struct GraphState {
  std::vector<GraphLane> lanes;
  std::vector<GraphCommand> commands;
  std::vector<uint32_t> at;  // by node, which command it is; UINT32_MAX: none
  std::vector<GraphSlot> slots;
  std::vector<std::vector<std::pair<uint32_t, Place>>> places;  // by slot: (lane, place), until it is sealed
  // Once sealed, in the order of their addresses, in which they are locked.
  std::vector<Timeline*> timelines;
  std::vector<Queue*> queues;
  uint64_t stride = 1;  // of the counters, from one replay to the next
  uint64_t replays = 0;
  uint64_t changes = 0;  // counts what is added to and taken from `pending`
  uint64_t line = 0;     // the user's line that the next commands are of
  bool sealed = false;
};

struct GraphObject {
  PyObject_HEAD GraphState* state;
  PyObject* devices;  // tuple
  PyObject* held;     // list: programs, memory, signals
  PyObject* part;     // what it is a part of, for who watches; may be null
  uint32_t generation;
  PyObject* weakrefs;
};

// Null with ForkedDeviceError for one inherited through fork.
GraphState* graph_usable(PyObject* self);
// Of a graph that is being built: null with an exception for a sealed one.
GraphState* graph_building(PyObject* self);
GraphCommand* graph_command(GraphState* graph, unsigned index);  // null with IndexError
bool graph_check(PyObject* object);                              // whether it is a GraphCommands
PyObject* graph_replay(PyObject* self, PyObject*);

// Room for so many changes in every lane; throws bad_alloc. Up to so many can then be made, which can't fail.
void graph_make_room(GraphState* graph, size_t changes);
void graph_fill_slot(GraphState* graph, uint32_t slot, uint64_t content);
void graph_patch_value(GraphState* graph, const GraphCommand& command, uint32_t position, const PackedValue& value);
struct Sizes {
  uint32_t groups[3], items[3];
};
void graph_patch_sizes(GraphState* graph, const GraphCommand& command, const Sizes& sizes);

// Methods of graph_changes.cpp.
PyObject* graph_add_slot(PyObject* self, PyObject*);
PyObject* graph_bind_address(PyObject* self, PyObject* args);
PyObject* graph_bind_value(PyObject* self, PyObject* args);
PyObject* graph_set_address(PyObject* self, PyObject* args);
PyObject* graph_set_value(PyObject* self, PyObject* args);
PyObject* graph_set_one(PyObject* self, PyObject* args);
PyObject* graph_set_sizes(PyObject* self, PyObject* args);

}  // namespace hcq
