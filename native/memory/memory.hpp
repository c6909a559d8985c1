// Host memory blocks and the Python objects over them, as other native files see them.
#pragma once
#include <Python.h>

#include "core/base.hpp"

namespace hcq {

// A piece of host memory; every Buffer, view, memoryview, capsule and allocator cache entry holds a reference.
struct Block {
  std::atomic<uint32_t> refs{1};
  uint32_t generation = g_generation;
  uint64_t address = 0;
  uint64_t size = 0;
  PyObject* owner = nullptr;  // keeps a caller's memory alive; null for our own
};

// hcq.HCQBuffer: what programs and queues take. `_buf` of buffers on the CPU devices.
struct HCQBufferObject {
  PyObject_HEAD uint64_t va_addr;
  uint64_t size;  // bytes
  Block* block;   // may be null for a handle made by hand
  PyObject* weakrefs;
};
extern PyTypeObject* HCQBuffer_Type;

// hcq.Buffer. Only what the launch path reads is declared here.
struct BufferObject {
  PyObject_HEAD PyObject* buf;  // `_buf`: the driver's handle; null while not allocated
  PyObject* device;             // str, canonical
  // further fields in memory/buffer.cpp
};
extern PyTypeObject* Buffer_Type;

int init_memory(PyObject* module);  // registers HCQBuffer, Buffer, LRUAllocator, MallocAllocator, memory_stats ...

}  // namespace hcq
