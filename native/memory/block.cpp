// Reference-counted blocks of host memory. Where the memory comes from is pool.cpp.
#include "core/retire.hpp"
#include "memory/memory.hpp"
#include "memory/pool.hpp"

namespace hcq {

namespace {

void give_back(void* p) {
  Block* block = static_cast<Block*>(p);
  pool_free(reinterpret_cast<void*>(block->address), block->place);
  delete block;
}

}  // namespace

Block* block_alloc(uint64_t size) {
  void* place = nullptr;
  void* address = pool_alloc(size, &place);
  if (!address) return nullptr;
  Block* block = new (std::nothrow) Block();
  if (!block) {
    pool_free(address, place);
    return nullptr;
  }
  block->address = reinterpret_cast<uint64_t>(address);
  block->size = size;
  block->place = place;
  return block;
}

Block* block_wrap(uint64_t address, uint64_t size, PyObject* owner) {
  Block* block = new (std::nothrow) Block();
  if (!block) return nullptr;
  block->address = address;
  block->size = size;
  block->owner = Py_XNewRef(owner);
  return block;
}

void block_unref(Block* block) {
  if (!block || block->generation != g_generation) return;
  // acq_rel: what other holders did to the block happened before it is given back
  if (block->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (!block->place) {  // the caller's memory
    if (block->owner) retire_object(block->owner);
    delete block;
  } else {
    retire(give_back, block);
  }
}

}  // namespace hcq
