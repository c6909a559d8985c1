// The structures of launches. Names and layouts are those of cuda.h. What does not live here: those of graphs' nodes
// (api_graph.hpp).
#pragma once
#include <cstddef>

#include "api/api.hpp"

namespace cudacpu {

struct CUlaunchAttribute {
  CUlaunchAttributeID id;
  char pad[4];
  union Value {
    char pad[64];
    int cooperative;
    struct {
      unsigned x, y, z;
    } clusterDim;
    int priority;
    int programmaticStreamSerializationAllowed;
    unsigned sharedMemCarveout;
  } value;
};

struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned numAttrs;
};

static_assert(sizeof(CUlaunchAttribute) == 72 && offsetof(CUlaunchAttribute, value) == 8);
static_assert(sizeof(CUlaunchConfig) == 56 && offsetof(CUlaunchConfig, attrs) == 40);

// What `extra` of a launch is made of: a marker, then what it marks.
inline void* const CU_LAUNCH_PARAM_END = nullptr;
inline void* const CU_LAUNCH_PARAM_BUFFER_POINTER = reinterpret_cast<void*>(uintptr_t{1});
inline void* const CU_LAUNCH_PARAM_BUFFER_SIZE = reinterpret_cast<void*>(uintptr_t{2});

}  // namespace cudacpu
