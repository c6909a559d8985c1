// Retirement while there are no native queues: nothing is ever in flight, so every release is immediate.
#include "core/retire.hpp"

namespace hcq {

Stamp::~Stamp() = default;
Stamp Stamp::now() { return Stamp(); }
bool Stamp::passed() const { return positions_.empty(); }
void Stamp::help() const {}

void retire(void (*fn)(void*), void* p) { fn(p); }
void retire_object(PyObject* object) { Py_XDECREF(object); }
void run_retired() {}

}  // namespace hcq
