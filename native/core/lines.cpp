// Lines of the user's program (lines.hpp). The table only grows: a program has so many lines, and no more.
#include "core/lines.hpp"

#include <cstring>
#include <new>
#include <unordered_map>
#include <vector>

namespace hcq {

namespace {
constexpr size_t kMost = 1 << 20;  // a program that makes code without end has no lines from here on
constexpr size_t kBlock = 1024;

// The words of each line, in memory that stays: whoever has a number finds them without the lock. Release when they are
// whole, acquire by who reads them.
using Text = std::atomic<const char*>;
std::atomic<Text*> g_texts[kMost / kBlock];

struct Table {
  SpinLock lock;  // the others
  std::vector<UserLine> lines;
  std::unordered_map<std::string, uint64_t> numbers;
};
Table* g_table = new Table;

// Under the lock. Without memory a line has no words here.
void keep_text(size_t number, const UserLine& line) {
  std::atomic<Text*>& block = g_texts[(number - 1) / kBlock];
  Text* texts = block.load(std::memory_order_relaxed);
  if (!texts) {
    if (!(texts = new (std::nothrow) Text[kBlock]())) return;
    block.store(texts, std::memory_order_release);
  }
  texts[(number - 1) % kBlock].store(strdup((line.file + ":" + std::to_string(line.line)).c_str()),
                                     std::memory_order_release);
}
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
    keep_text(number, line);
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

const char* line_text(uint64_t number) {
  if (!number || number > kMost) return nullptr;
  const Text* texts = g_texts[(number - 1) / kBlock].load(std::memory_order_acquire);
  return texts ? texts[(number - 1) % kBlock].load(std::memory_order_acquire) : nullptr;
}

// What the parent recorded stays known. Lines are added with the GIL, which the thread that forks has; only the lock
// may have been held by another one.
void lines_after_fork() { new (&g_table->lock) SpinLock; }

}  // namespace hcq
