// Lines of the user's program (lines.hpp). The table only grows: a program has so many lines, and no more.
#include "core/lines.hpp"

#include <new>
#include <unordered_map>
#include <vector>

namespace hcq {

namespace {
constexpr size_t kMost = 1 << 20;  // a program that makes code without end has no lines from here on

struct Table {
  SpinLock lock;  // the others
  std::vector<UserLine> lines;
  std::unordered_map<std::string, uint64_t> numbers;
};
Table* g_table = new Table;
}  // namespace

uint64_t line_number(const UserLine& line) {
  std::string key = line.file + '\0' + std::to_string(line.line) + '\0' + line.function;
  Table* t = g_table;
  t->lock.lock();
  uint64_t number = 0;
  if (auto at = t->numbers.find(key); at != t->numbers.end()) {
    number = at->second;
  } else if (t->lines.size() < kMost) {
    t->lines.push_back(line);
    number = t->lines.size();
    t->numbers.emplace(std::move(key), number);
  }
  t->lock.unlock();
  return number;
}

bool line_lookup(uint64_t number, UserLine* out) {
  Table* t = g_table;
  t->lock.lock();
  bool known = number && number <= t->lines.size();
  if (known) *out = t->lines[number - 1];
  t->lock.unlock();
  return known;
}

std::string line_words(uint64_t number) {
  UserLine line;
  return line_lookup(number, &line) ? line.file + ":" + std::to_string(line.line) : "";
}

// What the parent recorded stays known. Lines are added with the GIL, which the thread that forks has; only the lock
// may have been held by another one.
void lines_after_fork() { new (&g_table->lock) SpinLock; }

}  // namespace hcq
