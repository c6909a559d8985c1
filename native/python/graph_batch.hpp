// What one replay changes of a graph, gathered from its arguments and then carried out.
#pragma once
#include "python/graph.hpp"
#include "python/graph_input.hpp"

namespace hcq {

constexpr size_t kMostSpare = 256;       // changes of which the room is kept for the next batch
constexpr Py_ssize_t kMostCommands = 2;  // by the order of memory, and in that of recording

enum class What : uint8_t { input, slot, one, sizes };

// Fields are swapped with those that they replace, so that nothing is let go of before all is done.
struct Change {
  Change(What kind, uint32_t number) : what(kind), index(number) {}
  What what;
  uint32_t index;         // a slot, or a node
  uint32_t position = 0;  // of a launch's value
  PackedValue value{};    // of a slot: content alone
  Span span{};            // of an input
  Sizes sizes{};
  Ref buf, handle, kept[kMostCommands];
  Ref key, entry, before;  // of the record
};

struct ChangesObject {
  PyObject_HEAD PyObject* places;  // tuple of GraphInput, by slot
  PyObject* by_name;               // dict: name to slot
  PyObject* nodes;                 // list
  PyObject* record;                // dict: what values and sizes are that are no longer as captured, with `when`
  PyObject* values;                // dict: name to (slots, ((node, position), ...))
  PyObject* sized;                 // dict: name to nodes
  PyObject* commands;              // tuple of GraphCommands; empty: everything is declined
  InputOrder* order;
  uint64_t when;               // counts batches and notes
  std::vector<Change>* spare;  // room for the next batch
};

enum class Gathered : uint8_t { yes, declined, failed };

struct Batch {
  Batch(ChangesObject* of, bool fewer) : self(of), count(PyTuple_GET_SIZE(of->commands)), smaller(fewer) {
    changes.swap(*of->spare);  // a batch within this one, in a finalizer, has room of its own
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() {
    changes.clear();
    if (changes.capacity() <= kMostSpare) changes.swap(*self->spare);
  }
  ChangesObject* self;
  GraphState* states[kMostCommands];
  Py_ssize_t count;
  bool smaller;  // fewer bytes may do: values or sizes change along
  std::vector<Change> changes;
};

// Whether a replay's argument says anything.
bool says_anything(PyObject* argument);
// From (inputs, vals, sizes), each None or a dict; inputs may also be a tuple of all of them. May run Python, and
// changes nothing. `failed`: with an exception.
Gathered gather(Batch* batch, PyObject* const* args);
// Runs no Python and can't fail, where there is room (graph_make_room). What was replaced is in the batch afterwards.
void carry_out(Batch* batch);

}  // namespace hcq
