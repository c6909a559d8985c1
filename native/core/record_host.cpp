// What Python threads do, as records: submits, launches, waits, copies by the host, memory. All with the GIL, which is
// what guards the lanes; no lock is taken but the store's.
#include <algorithm>
#include <vector>

#include "core/queue.hpp"
#include "core/record.hpp"
#include "core/record_lanes.hpp"
#include "core/record_launch.hpp"
#include "platform/platform.hpp"

namespace hcq {

__thread LaunchBurst* t_launch_burst __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {
// Launches that follow each other are one record: a clock at every launch would cost a tenth of it. The first ones of a
// burst are looked at one by one, so that a thread which launches a few and waits shows where it did.
constexpr uint32_t kEach = 8, kThen = 32;
constexpr uint64_t kPause = 50000;  // ns without a launch that end a burst

struct Lane {
  RecordSlot slot;
  LaunchBurst burst;
  uint64_t thread = 0;
  std::atomic<bool> over{false};  // its thread has ended: without the GIL, so nothing else is done then
};

std::vector<Lane*>* g_lanes = new std::vector<Lane*>;

struct Mine {
  Lane* lane = nullptr;
  ~Mine() {
    if (lane) lane->over.store(true, std::memory_order_release);
  }
};
thread_local Mine t_mine;
// The same lane, got at by one load.
__thread Lane* t_lane __attribute__((tls_model("initial-exec"))) = nullptr;

void write(Lane* lane, uint64_t session, Record r, bool own) {
  if (own) {
    if (lane->slot.session != session) {
      lane->slot.track = record_track(session, RecordTrack{TrackKind::thread, "", "", lane->thread});
      lane->slot.session = session;
    }
    r.track = lane->slot.track;
  }
  record_write(lane->slot, session, r);
}

void end_burst(Lane* lane, uint64_t session) {
  LaunchBurst b = lane->burst;
  lane->burst = LaunchBurst{};
  b.count -= b.left;
  if (!b.count || b.session != session) return;
  Record r{};
  r.kind = RecordKind::launches;
  r.start = b.start;
  r.end = std::max(b.end, b.start + 1);
  r.submit = b.submit;
  r.what = b.queue;
  r.extra = b.count;
  write(lane, session, r, true);
}

Lane* find_lane() {
  Lane*& mine = t_mine.lane;
  for (Lane* lane : *g_lanes) {
    if (!lane->over.load(std::memory_order_acquire)) continue;  // acquire: its thread is done with it
    end_burst(lane, recording());
    record_slot_drop(lane->slot);
    lane->slot = RecordSlot{};
    lane->over.store(false, std::memory_order_relaxed);
    mine = lane;
    break;
  }
  if (!mine) {
    mine = new Lane;
    g_lanes->push_back(mine);
  }
  mine->thread = thread_number();
  t_launch_burst = &mine->burst;
  return t_lane = mine;
}

Lane* my_lane() { return t_lane ? t_lane : find_lane(); }
}  // namespace

void record_host(uint64_t session, Record r) {
  Lane* lane = my_lane();
  if (lane->burst.count) {
    lane->burst.end = std::max(lane->burst.end, std::min(r.start, lane->burst.end + kPause));
    end_burst(lane, session);
  }
  write(lane, session, r, r.kind != RecordKind::host_copy && r.kind != RecordKind::memory);
}

void record_host_copy(uint64_t session, const std::string& device, bool in, uint64_t bytes, uint64_t start) {
  Record r{};
  r.kind = RecordKind::host_copy;
  r.flags = in ? static_cast<uint8_t>(kRecordIn) : uint8_t{0};
  r.start = start;
  r.end = now_ns();
  r.what = bytes;
  r.track = record_track(session, RecordTrack{TrackKind::device, device, "", 0});
  record_host(session, r);
}

bool record_launch_seen(uint64_t session, const Queue* q) {
  Lane* lane = my_lane();
  LaunchBurst& b = lane->burst;
  uint64_t now = now_ns();
  if (b.queue != q->id || b.session != session || now - b.end > kPause) end_burst(lane, session);
  if (!b.count) b.start = now;
  b.session = session;
  b.queue = q->id;
  b.end = now;
  if (++b.count <= kEach) return true;
  b.left = kThen - 1;
  b.count += b.left;
  return false;
}

void record_launched(uint64_t submit) {
  LaunchBurst& b = t_lane->burst;
  if (b.count == 1) b.submit = submit;
  b.end = now_ns();
}

void record_memory(uint64_t session, DeviceTrack& at, const char* device, uint64_t bytes, uint64_t count,
                   uint64_t first, uint64_t last) {
  if (at.session != session) {
    at.track = record_track(session, RecordTrack{TrackKind::device, device, "", 0});
    at.session = session;
  }
  Record r{};
  r.kind = RecordKind::memory;
  r.start = r.end = now_ns();
  r.what = bytes;
  r.extra = count;
  r.signal = first;
  r.value = last;
  r.track = at.track;
  write(my_lane(), session, r, false);
}

void HostSpan::finish() {
  Record r{};
  r.kind = kind_;
  r.start = start_;
  r.end = now_ns();
  r.signal = signal_;
  r.value = value_;
  record_host(session_, r);
}

void lanes_flush() {
  for (Lane* lane : *g_lanes) end_burst(lane, recording());
}

void lanes_after_fork() {
  g_lanes = new std::vector<Lane*>;
  t_mine.lane = t_lane = nullptr;
  t_launch_burst = nullptr;
}

}  // namespace hcq
