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
#include "python/place.hpp"

namespace nb = nanobind;

namespace hcq {

namespace {
// A place in code (place.hpp) and what it is. It holds its code object, so that no other one comes to lie there.
struct alignas(32) Spot {
  const void* place = nullptr;
  PyCodeObject* code = nullptr;
  uint64_t line = 0;
  bool inside = false;  // of hcq or a library: not the user's
};
constexpr size_t kSpots = 1024;
Spot g_spots[kSpots];  // under the GIL

Spot* spot_of(const void* place) {
  auto address = reinterpret_cast<size_t>(place);
  return &g_spots[(address >> 1 ^ address >> 11) % kSpots];  // instructions are two bytes
}

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

// Fills the frame's spot; drops what was there.
__attribute__((noinline, cold)) void look_up(Spot* spot, const void* place, PyFrameObject* frame) {
  PyCodeObject *code = PyFrame_GetCode(frame), *before = spot->code;
  std::string file = text_of(code->co_filename);
  spot->place = place;
  spot->code = code;
  spot->inside = is_inside(file);
  spot->line = 0;
  if (!spot->inside) {
    int line = PyCode_Addr2Line(code, PyFrame_GetLasti(frame));
    spot->line = line_number({near(file), static_cast<uint32_t>(line < 0 ? 0 : line), text_of(code->co_name)});
  }
  Py_XDECREF(before);  // last: it may end in anything
}

// The line of a frame: false for one of hcq or a library.
bool line_of_frame(PyFrameObject* frame, uint64_t* line) {
  const void* place = place_of(frame);
  Spot* spot = spot_of(place);
  if (spot->place != place) look_up(spot, place, frame);
  // A finalizer may have taken the spot while what was there before was dropped: then nothing is said.
  bool ours = spot->place == place;
  *line = ours ? spot->line : 0;
  return !(ours && spot->inside);
}

__attribute__((noinline)) uint64_t line_by_frames() {
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
}  // namespace

uint64_t user_line() {
  const void* place = place_here();
  const Spot* spot = spot_of(place);
  // What is of no user (or not known) has frames further out.
  if (__builtin_expect(spot->place == place && spot->line != 0, 1)) return spot->line;
  return line_by_frames();
}

void init_user_line(nb::module_& m) {
  init_place();
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
