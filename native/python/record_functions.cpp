// Recording as Python sees it: begin, end, a snapshot, and spans of host work that is done in Python.
#include "python/record_functions.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "core/record.hpp"

namespace nb = nanobind;

namespace hcq {

namespace {
nb::tuple snapshot(uint64_t since) {
  RecordSnapshot s = record_snapshot(since);
  nb::list tracks, labels;
  nb::dict programs;
  for (const RecordTrack& t : s.tracks) tracks.append(nb::make_tuple(static_cast<int>(t.kind), t.device, t.name, t.id));
  for (const std::string& label : s.labels) labels.append(nb::cast(label));
  for (const auto& [id, name] : s.programs) programs[nb::cast(id)] = nb::cast(name);
  nb::bytes records(s.records.data(), s.records.size() * sizeof(Record));
  return nb::make_tuple(records, tracks, programs, labels, s.dropped);
}

void span(uint8_t kind, const std::string& label, uint64_t start, uint64_t end) {
  uint64_t session = recording();
  if (!session) return;
  Record r{};
  r.kind = static_cast<RecordKind>(kind);
  r.flags = kRecordLabelled;
  r.start = start;
  r.end = end;
  r.extra = record_label(label);
  record_host(session, r);
}
}  // namespace

void init_record_functions(nb::module_& m) {
  m.def("record_begin", record_begin, nb::arg("most_records"),
        "Record what devices and this process do, until as many record_end; at most so many records.");
  m.def("record_end", record_end, "Ends one record_begin; the last one drops the records.");
  m.def("record_snapshot", snapshot, nb::arg("since"),
        "(records, tracks, program names by id, labels, how many were dropped); of what ended at `since` ns or later.");
  m.def(
      "recording", [] { return recording() != 0; }, "Whether anybody records.");
  m.def("record_span", span, nb::arg("kind"), nb::arg("label"), nb::arg("start"), nb::arg("end"),
        "A stretch of the calling thread's own, in ns of perf_counter; nothing where nobody records.");
}

}  // namespace hcq
