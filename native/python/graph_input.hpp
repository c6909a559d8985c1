// An input of a graph as it was captured and as it is now, and whether inputs share bytes.
#pragma once
#include <Python.h>

#include <cstdint>
#include <vector>

namespace hcq {

struct Span {
  uint64_t start, end;
  bool operator==(const Span& other) const { return start == other.start && end == other.end; }
};

struct GraphInputObject {
  PyObject_HEAD PyObject* buf;  // a Buffer or handle
  PyObject* handle;             // its memory is the graph's, be the Buffer deallocated meanwhile
  PyObject* device;             // of the captured one, str; None for handles
  Span captured, now;
  uint64_t copied;  // bytes from its start that copies use: what replaces it has as many at least
  uint32_t names;   // how many it has
  char by_host;     // a copy by the host uses it: what replaces it is a Buffer then
  char replaced;    // ever
};
bool graph_input_check(PyObject* object);
inline GraphInputObject* graph_input(PyObject* object) { return reinterpret_cast<GraphInputObject*>(object); }

// Whether the order that was found by the bytes that commands use holds for the inputs as they are: they are as
// captured, or share bytes neither with each other nor with anything else.
class InputOrder {
 public:
  // `places`: a tuple of GraphInput, which outlives this. Throws bad_alloc; nothing else here does, but fix.
  explicit InputOrder(PyObject* places);
  void fix(std::vector<Span> fixed);  // what is no input's: sorted, apart from each other
  void moved(uint32_t slot);          // that input's `now` is another
  void unknown() { known_ = false; }  // any of them may be
  bool holds();

  bool ordered = false;  // commands run in the order of recording anyway

 private:
  bool meets_fixed(const Span& span) const;
  bool meets_any(uint32_t slot) const;
  bool all_apart();
  bool as_captured() const;

  std::vector<GraphInputObject*> places_;
  std::vector<Span> fixed_, sorted_;
  uint32_t recent_ = 0;  // moves since it was asked
  bool known_ = false, apart_ = false;
};

}  // namespace hcq
