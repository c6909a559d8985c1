// The log: see log.hpp, and the cuLogs* functions. What does not live here: what is said.
#include "api/log.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

namespace cudacpu {

using CUlogsCallback = void (*)(void* data, CUlogLevel level, char* message, size_t length);
using CUlogsCallbackHandle = struct CUlogsCallbackEntry_st*;
using CUlogIterator = unsigned int;

namespace {

constexpr size_t most_lines = 256;

struct Log {
  std::mutex lock;  // guards all that follows; nobody is called and nothing is written under it
  std::deque<std::string> lines;
  unsigned first = 0;  // the number of lines.front()
  std::map<uintptr_t, std::pair<CUlogsCallback, void*>> callbacks;
  uintptr_t next = 1;
};

Log& log() {
  static auto* one = new Log();  // never destroyed: threads log until the process is gone
  return *one;
}

void write_line(const std::string& line) {
  const char* where = std::getenv("CUDA_LOG_FILE");
  std::string whole = "hcq.cudacpu: " + line + "\n";
  std::FILE* file = !where || !std::strcmp(where, "stderr") ? stderr
                    : !std::strcmp(where, "stdout")         ? stdout
                                                            : std::fopen(where, "ae");
  if (!file) return;
  std::fputs(whole.c_str(), file);
  if (file == stderr || file == stdout) {
    std::fflush(file);
  } else {
    std::fclose(file);
  }
}

// The lines from *from (from the oldest, where that is gone), and the number of the next.
std::vector<std::string> lines_since(const CUlogIterator* from, unsigned* next) {
  std::lock_guard<std::mutex> hold(log().lock);
  *next = log().first + static_cast<unsigned>(log().lines.size());
  size_t skip = from && *from > log().first ? *from - log().first : 0;
  if (skip >= log().lines.size()) return {};
  return {log().lines.begin() + static_cast<long>(skip), log().lines.end()};
}

}  // namespace

void log_line(CUlogLevel level, const std::string& line) {
  std::vector<std::pair<CUlogsCallback, void*>> callbacks;
  {
    std::lock_guard<std::mutex> hold(log().lock);
    log().lines.push_back(line);
    if (log().lines.size() > most_lines) {
      log().lines.pop_front();
      log().first++;
    }
    for (auto& [key, one] : log().callbacks) callbacks.push_back(one);
  }
  write_line(line);
  std::string copy = line;
  for (auto& [function, data] : callbacks) function(data, level, copy.data(), copy.size());
}

HCQ_API cuLogsRegisterCallback(CUlogsCallback function, void* data, CUlogsCallbackHandle* out) {
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> hold(log().lock);
  uintptr_t key = log().next++;
  log().callbacks[key] = {function, data};
  if (out) *out = reinterpret_cast<CUlogsCallbackHandle>(key);
  return CUDA_SUCCESS;
}

HCQ_API cuLogsUnregisterCallback(CUlogsCallbackHandle callback) {
  std::lock_guard<std::mutex> hold(log().lock);
  return log().callbacks.erase(reinterpret_cast<uintptr_t>(callback)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

HCQ_API cuLogsCurrent(CUlogIterator* out, unsigned flags) {
  if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
  lines_since(nullptr, out);
  return CUDA_SUCCESS;
}

HCQ_API cuLogsDumpToFile(CUlogIterator* from, const char* path, unsigned flags) {
  if (!path || flags) return CUDA_ERROR_INVALID_VALUE;
  unsigned next;
  std::vector<std::string> lines = lines_since(from, &next);
  std::FILE* file = std::fopen(path, "we");
  if (!file) return CUDA_ERROR_INVALID_VALUE;
  for (const std::string& line : lines) std::fprintf(file, "%s\n", line.c_str());
  std::fclose(file);
  if (from) *from = next;
  return CUDA_SUCCESS;
}

HCQ_API cuLogsDumpToMemory(CUlogIterator* from, char* buffer, size_t* size, unsigned flags) {
  if (!buffer || !size || !*size || flags) return CUDA_ERROR_INVALID_VALUE;
  unsigned next;
  std::vector<std::string> lines = lines_since(from, &next);
  size_t first = lines.size(), bytes = 0;  // the newest lines that fit
  while (first > 0 && bytes + lines[first - 1].size() + 1 < *size) bytes += lines[--first].size() + 1;
  if (first == lines.size() && !lines.empty()) return *size = 0, CUDA_ERROR_INVALID_VALUE;
  std::string all;
  for (; first < lines.size(); first++) all += lines[first] + "\n";
  std::memcpy(buffer, all.c_str(), all.size() + 1);
  *size = all.size();
  if (from) *from = next;
  return CUDA_SUCCESS;
}

}  // namespace cudacpu
