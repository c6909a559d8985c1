// Finding the user's line (user_line.hpp). A place in code is looked up once: a launch in a loop costs a comparison.
#include "python/user_line.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <climits>
#include <string>
#include <vector>

#include "core/lines.hpp"
#include "python/common.hpp"

namespace nb = nanobind;

namespace hcq {

namespace {
// A place in code and what it is. It holds its code object, so that no other one comes to lie there.
struct alignas(32) Spot {
  PyCodeObject* code = nullptr;
  int at = 0;           // the instruction
  bool inside = false;  // of hcq or a library: not the user's
  uint64_t line = 0;
};
constexpr size_t kSpots = 1024;
Spot g_spots[kSpots];  // under the GIL

// How files begin that are not the user's, and those among them that are nevertheless.
struct Rules {
  std::vector<std::string> skipped, kept, libraries;
};
Rules* g_rules = new Rules;

bool begins(const std::string& text, const std::vector<std::string>& with) {
  for (const std::string& start : with)
    if (text.compare(0, start.size(), start) == 0) return true;
  return false;
}

bool is_inside(const std::string& file) {
  if (begins(file, g_rules->skipped) && !begins(file, g_rules->kept)) return true;
  return begins(file, g_rules->libraries) && file.find("-packages") == std::string::npos;
}

// As it is seen from the current folder, where it is below that.
std::string near(std::string file) {
  char folder[PATH_MAX];
  if (!getcwd(folder, sizeof folder)) return file;
  std::string start = std::string(folder) + "/";
  return file.compare(0, start.size(), start) == 0 ? file.substr(start.size()) : file;
}

std::string text_of(PyObject* string) {
  const char* text = string ? PyUnicode_AsUTF8(string) : nullptr;
  if (!text) PyErr_Clear();  // a file's name may have bytes that are no UTF-8
  return text ? text : "?";
}

// Fills the spot; drops what was there.
void look_up(Spot* spot, PyCodeObject* code, int at) {
  PyCodeObject* before = spot->code;
  std::string file = text_of(code->co_filename);
  spot->code = reinterpret_cast<PyCodeObject*>(Py_NewRef(code));
  spot->at = at;
  spot->inside = is_inside(file);
  spot->line = 0;
  if (!spot->inside) {
    int line = PyCode_Addr2Line(code, at);
    spot->line = line_number({near(file), static_cast<uint32_t>(line < 0 ? 0 : line), text_of(code->co_name)});
  }
  Py_XDECREF(before);  // last: it may end in anything
}
}  // namespace

namespace {
// The line of a frame: false for one of hcq or a library.
bool line_of_frame(PyFrameObject* frame, uint64_t* line) {
  PyCodeObject* code = PyFrame_GetCode(frame);
  int at = PyFrame_GetLasti(frame);
  size_t hash = (reinterpret_cast<size_t>(code) >> 4) ^ static_cast<size_t>(at);
  Spot* spot = &g_spots[hash % kSpots];
  if (__builtin_expect(spot->code != code || spot->at != at, 0)) look_up(spot, code, at);
  Py_DECREF(code);  // its frame holds it
  // A finalizer may have taken the spot while what was there before was dropped: then nothing is said.
  *line = spot->code == code && spot->at == at ? spot->line : 0;
  return !spot->inside;
}
}  // namespace

uint64_t user_line() {
  PyFrameObject* frame = PyEval_GetFrame();  // borrowed
  uint64_t line = 0;
  if (!frame || line_of_frame(frame, &line)) return line;
  for (Ref held(reinterpret_cast<PyObject*>(PyFrame_GetBack(frame))); held;
       held = Ref(reinterpret_cast<PyObject*>(PyFrame_GetBack(frame)))) {
    frame = reinterpret_cast<PyFrameObject*>(held.get());
    if (line_of_frame(frame, &line)) return line;
  }
  return 0;
}

void init_user_line(nb::module_& m) {
  m.def("user_line", user_line,
        "The number of the innermost line outside of hcq and the standard library; 0: there is none.");
  m.def(
      "user_line_rules",
      [](std::vector<std::string> skipped, std::vector<std::string> kept, std::vector<std::string> libraries) {
        *g_rules = Rules{std::move(skipped), std::move(kept), std::move(libraries)};
      },
      nb::arg("skipped"), nb::arg("kept"), nb::arg("libraries"),
      "How files begin that are no user's: hcq's own, those of them that are written like a user's, and libraries.");
  m.def(
      "line_of",
      [](uint64_t number) -> nb::object {
        UserLine line;
        if (!line_lookup(number, &line)) return nb::none();
        return nb::make_tuple(line.file, line.line, line.function);
      },
      nb::arg("number"), "(file, line, function) of a line's number, or None.");
}

}  // namespace hcq
