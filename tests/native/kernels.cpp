// Loads and runs the kernels of kernels.c without Python, so that another architecture can be tested under emulation
// (test_aarch64.py). Exits with the number of wrong results.
#include <sched.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "core/program.hpp"
#include "core/record.hpp"

namespace hcq {
// What the queues would bring: here nothing is ever queued.
uint32_t g_generation = 1;
void yield_thread() { sched_yield(); }
void retire(void (*fn)(void*), void* p) { fn(p); }
uint64_t submit_record(const Queue*, const PacketHeader*) { return 0; }
}  // namespace hcq

using namespace hcq;

namespace {

int g_wrong = 0;
std::vector<uint8_t> g_library;
const uint32_t kOne[3] = {1, 1, 1};

void check(bool right, const char* what, int index) {
  if (right) return;
  ++g_wrong;
  std::printf("%s %d is wrong\n", what, index);
}

Program* load(const char* name) {
  std::string error;
  Program* program = program_load(g_library.data(), g_library.size(), name, &error);
  if (program) return program;
  std::printf("%s\n", error.c_str());
  std::exit(100);
}

template <class T>
void put(std::vector<uint8_t>* to, const Param& p, T value) {
  std::memcpy(to->data() + p.offset, &value, sizeof value);
}

std::vector<uint8_t> pack(const Program& program, const void* out, const std::vector<double>& values) {
  std::vector<uint8_t> kernargs(program.kernargs_size);
  put(&kernargs, program.params[0], reinterpret_cast<uint64_t>(out));
  for (size_t i = 1; i < program.params.size(); ++i) {
    const Param& p = program.params[i];
    double v = values[i - 1];
    switch (p.kind) {
      case ParamKind::i8:
        put(&kernargs, p, static_cast<int8_t>(v));
        break;
      case ParamKind::i16:
        put(&kernargs, p, static_cast<int16_t>(v));
        break;
      case ParamKind::u16:
        put(&kernargs, p, static_cast<uint16_t>(v));
        break;
      case ParamKind::i32:
        put(&kernargs, p, static_cast<int32_t>(v));
        break;
      case ParamKind::i64:
        put(&kernargs, p, static_cast<int64_t>(v));
        break;
      case ParamKind::boolean:
        put(&kernargs, p, static_cast<uint8_t>(v));
        break;
      case ParamKind::f32:
        put(&kernargs, p, static_cast<float>(v));
        break;
      case ParamKind::f64:
        put(&kernargs, p, v);
        break;
      default:
        check(false, "kind of parameter", static_cast<int>(i));
    }
  }
  return kernargs;
}

void run_arguments(const char* name, uint32_t items) {
  Program* program = load(name);
  const std::vector<double> values = {2.5, -1.25, 2, -100, 65000, -5e12, 1, 1, 2, 3, 4, 5, 6, 7, 8, -1, -2, -3, -4, -5};
  double out[25] = {};
  auto kernargs = pack(*program, out, values);
  const uint32_t counts[3] = {items, 1, 1};
  for (int round = 0; round < 2; ++round) {
    run_groups(*program, kernargs.data(), kOne, counts, 0, 1);
    for (int i = 0; i < 20; ++i) check(out[i] == values[i], name, i);
    check(out[20] == std::exp(2.5) && out[21] == 3 && out[22] == 13, "relocated", round);
    check(out[23] == 6 + round && out[24] == 3 + 3 * round, "global", round);
  }
  program_release(program);
}

void run_sum() {
  Program* program = load("sum");
  std::vector<float> in(64 * 256), out(64);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 100);
  const void* kernargs[2] = {out.data(), in.data()};
  const uint32_t groups[3] = {64, 1, 1}, items[3] = {256, 1, 1};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      run_groups(*program, reinterpret_cast<const uint8_t*>(kernargs), groups, items, t * 16, t * 16 + 16);
    });
  for (auto& thread : threads) thread.join();
  for (int g = 0; g < 64; ++g) {
    float expected = 0;
    for (int i = 0; i < 256; ++i) expected += in[g * 256 + i];
    check(out[g] == expected, "sum", g);
  }
  program_release(program);
}

void run_early() {
  Program* program = load("early");
  for (int keep = 0; keep < 4; ++keep) {
    int out[64] = {};
    auto kernargs = pack(*program, out, {static_cast<double>(keep)});
    const uint32_t items[3] = {64, 1, 1};
    run_groups(*program, kernargs.data(), kOne, items, 0, 1);
    for (int i = 0; i < 64; ++i) check(out[i] == (i % 3 == keep ? 0 : (i + 1) % 64 + (i % 2 ? 0 : 1000)), "early", i);
  }
  program_release(program);
}

void run_registers() {
  Program* program = load("registers");
  double out[32] = {};
  auto kernargs = pack(*program, out, {0.5, 2});
  const uint32_t items[3] = {32, 1, 1};
  run_groups(*program, kernargs.data(), kOne, items, 0, 1);
  for (int i = 0; i < 32; ++i) check(out[i] == 4.0 * i + 28 + 2 + i, "registers", i);
  program_release(program);
}

}  // namespace

int main(int, char** argv) {
  std::ifstream file(argv[1], std::ios::binary);
  g_library.assign(std::istreambuf_iterator<char>(file), {});
  run_arguments("plain", 1);
  run_arguments("arguments", 4);
  run_sum();
  run_early();
  run_registers();
  return g_wrong > 99 ? 99 : g_wrong;
}
