// Names of programs (names.hpp).
#include "core/names.hpp"

#include <deque>
#include <unordered_map>

namespace hcq {

SpinLock* g_freeing = new SpinLock;

namespace {
constexpr size_t kRemembered = 1024;  // programs that are gone

struct Names {
  SpinLock lock;  // the others
  uint64_t last = 0;
  std::unordered_map<uint64_t, std::string> names;
  std::deque<uint64_t> gone;
};
Names* g_names = new Names;
}  // namespace

uint64_t program_named(const std::string& name) {
  Names* n = g_names;
  n->lock.lock();
  uint64_t number = ++n->last;
  n->names.emplace(number, name);
  n->lock.unlock();
  return number;
}

void program_forgotten(uint64_t number) {
  Names* n = g_names;
  n->lock.lock();
  n->gone.push_back(number);
  if (n->gone.size() > kRemembered) {
    n->names.erase(n->gone.front());
    n->gone.pop_front();
  }
  n->lock.unlock();
}

std::string program_name(uint64_t number) {
  Names* n = g_names;
  n->lock.lock();
  auto at = n->names.find(number);
  std::string name = at == n->names.end() ? "a program that is gone" : at->second;
  n->lock.unlock();
  return name;
}

void names_after_fork() {
  uint64_t last = g_names->last;
  g_names = new Names;  // the old one is leaked: its lock may be held by a thread that is gone
  g_names->last = last;
  g_freeing = new SpinLock;
}

}  // namespace hcq
