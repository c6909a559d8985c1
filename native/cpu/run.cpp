// Runs work-groups of a loaded function on the calling thread. How code got into memory is the loader's business, which
// thread runs which groups the command processor's.
#include <algorithm>

#include "cpu/code.hpp"
#include "cpu/context.hpp"
#include "cpu/fault.hpp"
#include "cpu/fiber.hpp"

namespace hcq {

namespace {

// Visits the groups of a range in order, x fastest, and keeps `id` at the one that is visited. Only what changes is
// written, each by a store of its own: a kernel reads the ids at once, and where a load isn't served by one store of
// its size it waits for all stores before it, those of the group before to memory. A kernel of 1024 items that streams
// lost a quarter of its speed that way.
class Groups {
 public:
  Groups(uint32_t* id, const uint32_t counts[3], uint64_t first, uint64_t last)
      : id_(id), counts_(counts), linear_(first), last_(last) {
    uint64_t x = counts[0], y = counts[1];
    set(0, static_cast<uint32_t>(first % x));
    set(1, static_cast<uint32_t>(first / x % y));
    set(2, static_cast<uint32_t>(first / x / y));
  }
  bool done() const { return linear_ == last_; }
  uint64_t linear() const { return linear_; }
  void next() {
    ++linear_;
    for (int d = 0; d < 3; ++d) {
      uint32_t now = id_[d] + 1;
      set(d, now < counts_[d] ? now : 0);
      if (now < counts_[d]) return;
    }
  }

 private:
  // Volatile: compilers would join neighbours.
  void set(int d, uint32_t value) { static_cast<volatile uint32_t*>(id_)[d] = value; }

  uint32_t* id_;
  const uint32_t* counts_;
  uint64_t linear_, last_;
};

// What run_groups was asked for, with the context that the calling thread holds meanwhile.
struct Job {
  Context* context;
  RunningProgram& running;
  const uint32_t* groups;
  const uint32_t* items;
  uint64_t first, last;
};

// The items of a group, one after the other, until one says that it has done the work of all: then that is the first,
// and nothing is written (see Groups).
void run_items_of_group(Context* c, const uint32_t items[3]) {
  for (uint32_t z = 0; z < items[2]; ++z) {
    for (uint32_t y = 0; y < items[1]; ++y) {
      for (uint32_t x = 0; x < items[0]; ++x) {
        if ((x | y | z) != 0) {
          c->local_id[0] = x;
          c->local_id[1] = y;
          c->local_id[2] = z;
        }
        c->caller(c->entry, c->arguments);
        if (c->local_id[3] != 0) return;
      }
    }
  }
  std::fill_n(c->local_id, 3, 0u);
}

// On the context's item stack: every group.
void run_items(void* argument) {
  const Job& job = *static_cast<const Job*>(argument);
  Context* c = job.context;
  std::fill_n(c->local_id, 4, 0u);
  for (Groups at(c->group.group_id, job.groups, job.first, job.last); !at.done(); at.next()) {
    job.running.at_group(at.linear());
    run_items_of_group(c, job.items);
  }
}

void lay_out_fibers(Context* c, const uint32_t items[3]) {
  if (std::equal(items, items + 3, c->laid_out)) return;
  uint32_t i = 0;
  for (uint32_t z = 0; z < items[2]; ++z)
    for (uint32_t y = 0; y < items[1]; ++y)
      for (uint32_t x = 0; x < items[0]; ++x, ++i) {
        c->fibers[i].local_id[0] = x;
        c->fibers[i].local_id[1] = y;
        c->fibers[i].local_id[2] = z;
      }
  if (i > c->guarded) context_guard(c, i);
  std::copy(items, items + 3, c->laid_out);
}

void run_fibers(const Job& job) {
  Context* c = job.context;
  uint32_t count = job.items[0] * job.items[1] * job.items[2];
  lay_out_fibers(c, job.items);
  for (Groups at(c->group.group_id, job.groups, job.first, job.last); !at.done(); at.next()) {
    job.running.at_group(at.linear());
    fibers_prepare(c, count);
    hcq_run_fibers(c);
  }
}

void run_group_entries(const Job& job, const Program& program, const uint8_t* kernargs) {
  auto entry = reinterpret_cast<void (*)(const uint8_t*, const GroupContext*)>(program.entry);
  Context* c = job.context;
  for (Groups at(c->group.group_id, job.groups, job.first, job.last); !at.done(); at.next()) {
    job.running.at_group(at.linear());
    entry(kernargs, &c->group);
  }
}

// C kernels: once their arguments are spread and their instance is known.
void run_kernel(Job& job, const Program& program, const uint8_t* kernargs) {
  const Code& code = *static_cast<const Code*>(program.code);
  Context* c = job.context;
  c->caller = code.plan.spread(kernargs, &c->values);
  c->arguments = c->values.values;
  auto run = [&](void* entry) {
    c->entry = entry;
    if (program.kind == EntryKind::fibers)
      run_fibers(job);
    else
      hcq_call_on_stack(c->item_stack(), run_items, &job);
  };
  if (!code.image->has_local()) return run(program.entry);
  if (const Instance* own = code.image->instance(c->index)) return run(own->code.address + code.entry);
  // No memory for local arrays of this context's own: the groups of all contexts like it take turns.
  std::lock_guard<std::mutex> turn(code.image->first_lock());
  run(program.entry);
}

void run_grid(const Program& program, const uint8_t* kernargs, const uint32_t groups[3], const uint32_t items[3],
              uint64_t first, uint64_t last) {
  RunningProgram running(&program, groups);
  Context* c = context_take();
  std::copy(groups, groups + 3, c->group.num_groups);
  std::copy(items, items + 3, c->group.local_size);
  Job job{c, running, groups, items, first, last};
  if (program.kind == EntryKind::group)
    run_group_entries(job, program, kernargs);
  else
    run_kernel(job, program, kernargs);
  context_return(c);
}

}  // namespace

void run_groups(const Program& program, const uint8_t* kernargs, const uint32_t groups[3], const uint32_t items[3],
                uint64_t first, uint64_t last) {
  switch (program.kind) {
    case EntryKind::nothing:
      return;
    case EntryKind::plain: {
      RunningProgram running(&program, nullptr);
      return static_cast<const Code*>(program.code)->plan.call_once(program.entry, kernargs);
    }
    case EntryKind::packed: {
      RunningProgram running(&program, nullptr);
      return reinterpret_cast<void (*)(const uint8_t*)>(program.entry)(kernargs);
    }
    default:
      if (first != last) run_grid(program, kernargs, groups, items, first, last);
  }
}

}  // namespace hcq
