// The devices that the library shows: how many, of which compute capability, with how much memory. What does not live
// here: contexts (context.hpp), memory (memory.hpp).
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "api/api.hpp"

namespace cudacpu {

class Arena;
class Context;

class Device {
 public:
  const int ordinal;
  const int physical;           // which one it is, whatever CUDA_VISIBLE_DEVICES makes of the ordinals
  const int capability;         // ten times the major one plus the minor one
  const size_t memory_bytes;    // what may be allocated
  std::atomic<size_t> used{0};  // bytes allocated; only a count, so that no order is needed
  Arena& arena;                 // what cuMemAlloc and cuMemAllocManaged take from
  Context* primary;             // made with the device; active while retained

  Device(int ordinal, int physical, int capability, size_t memory_bytes);
  std::string name() const;
  CUuuid uuid() const;
  // Any CUdevice_attribute; false for one that is unknown.
  bool attribute(CUdevice_attribute which, int* value) const;
  // Takes bytes from the device's memory; false where it has fewer left.
  bool take(size_t bytes);
  void give(size_t bytes) { used.fetch_sub(bytes, std::memory_order_relaxed); }  // a count only
};

// All of them, made by cuInit() and never destroyed; empty before.
std::vector<Device*>& devices();
CUresult make_devices();
// Whether devices reach each other's memory, by HCQ_CUDACPU_PEERS.
bool peers();
// Null for an ordinal that is none.
Device* find_device(CUdevice ordinal);

}  // namespace cudacpu
