// Runs of bound commands, recorded once. What they were when that was done is kept beside: the packets, and where
// arguments lie elsewhere, those. Compared at each submit; a run that differs, or that named buffers where some are
// gone since, is recorded anew, and submits under way keep what they were given.
#include "vulkan/batch.hpp"

#include <cstring>
#include <map>

#include "core/packet.hpp"

namespace hcq::vk {

namespace {
struct Run {
  std::vector<uint8_t> packets, arguments;
  std::shared_ptr<Kept> kept;
};

// What an interface keeps with bound commands.
struct Runs {
  std::map<uint32_t, Run> by_offset;
  uint32_t generation = g_generation;
};

void drop(void* carried) {
  auto* runs = static_cast<Runs*>(carried);
  if (runs->generation == g_generation) delete runs;
}

const ExecPacket* exec_of(const uint8_t* packet) {
  auto* h = reinterpret_cast<const PacketHeader*>(packet);
  return h->type == PacketType::exec ? reinterpret_cast<const ExecPacket*>(packet) : nullptr;
}

const uint8_t* external(const ExecPacket* p) {
  return p->header.flags & kExternalArgs ? reinterpret_cast<const ExecExtra*>(p + 1)->arguments : nullptr;
}

// Calls see(packet) for each, until it returns false.
template <class See>
bool each(const uint8_t* first, const uint8_t* end, See see) {
  for (const uint8_t* at = first; at < end; at += reinterpret_cast<const PacketHeader*>(at)->units * kUnit)
    if (!see(at)) return false;
  return true;
}

bool same(const Run& run, const uint8_t* first, const uint8_t* end) {
  auto bytes = static_cast<size_t>(end - first);
  if (run.packets.size() != bytes || std::memcmp(run.packets.data(), first, bytes) != 0) return false;
  const uint8_t* then = run.arguments.data();
  return each(first, end, [&](const uint8_t* packet) {
    const ExecPacket* p = exec_of(packet);
    const uint8_t* now = p ? external(p) : nullptr;
    if (!now) return true;
    then += p->program->kernargs_size;
    return std::memcmp(then - p->program->kernargs_size, now, p->program->kernargs_size) == 0;
  });
}

std::shared_ptr<Kept> record(const std::shared_ptr<Recorder>& recorder, const uint8_t* first, const uint8_t* end,
                             Run* run) {
  run->packets.assign(first, end);
  run->arguments.clear();
  auto kept = std::make_shared<Kept>(recorder);
  Presence present(*recorder->work()->context);
  recorder->begin(&kept->recorded, true);
  bool any = false;
  try {
    each(first, end, [&](const uint8_t* packet) {
      if (const ExecPacket* p = exec_of(packet)) {
        const uint8_t* arguments = external(p);
        if (arguments)
          run->arguments.insert(run->arguments.end(), arguments, arguments + p->program->kernargs_size);
        else
          arguments = inline_arguments(const_cast<ExecPacket*>(p));
        if (!p->groups[0] || !p->groups[1] || !p->groups[2]) return true;
        if (any) recorder->next(&kept->recorded);
        recorder->launch(&kept->recorded, kernel_of(*p->program), arguments, p->groups, p->items);
        any = true;
      } else if (reinterpret_cast<const PacketHeader*>(packet)->type == PacketType::copy) {
        auto* c = reinterpret_cast<const CopyPacket*>(packet);
        if (!c->bytes || c->destination == c->source) return true;
        if (any) recorder->next(&kept->recorded);
        recorder->copy(&kept->recorded, c->destination, c->source, c->bytes);
        any = true;
      }
      return true;
    });
  } catch (const Failure&) {
    recorder->work()->context->call.EndCommandBuffer(kept->recorded.buffer);
    throw;
  }
  recorder->end(&kept->recorded);
  return kept;
}
}  // namespace

std::shared_ptr<Kept> recorded_batch(const std::shared_ptr<Recorder>& recorder, BoundCommands* commands,
                                     uint32_t offset, uint32_t end) {
  auto* runs = static_cast<Runs*>(commands->carried);
  if (!runs) {
    commands->carried = runs = new Runs;
    commands->drop = drop;
  }
  Run& run = runs->by_offset[offset];
  const uint8_t* first = commands->memory + static_cast<size_t>(offset) * kUnit;
  const uint8_t* last = commands->memory + static_cast<size_t>(end) * kUnit;
  std::shared_ptr<Kept> before = run.kept;  // given back where the device is not held open here
  if (!before || before->recorder != recorder || !recorder->stands(before->recorded) || !same(run, first, last)) {
    run.kept = nullptr;
    std::shared_ptr<Kept> kept = record(recorder, first, last, &run);
    if (kept->recorded.again) run.kept = kept;
    return kept;
  }
  return before;
}

}  // namespace hcq::vk
